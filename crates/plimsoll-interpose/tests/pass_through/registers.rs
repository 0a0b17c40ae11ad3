//! The caller's registers: as they are told to the hook, and as the caller finds them again; and
//! whether its stack can be unwound.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_interpose::Mode;

use super::harness::{FUTEX, PRIVATE, for_each_mode, handle, in_mode, inspect_next, last, once};

/// What the known caller is to do, and what it saw.
#[repr(C)]
#[derive(Debug, Default)]
struct Known {
    number: usize,
    arguments: [usize; 6],
    /// rbx, rbp, r12 to r15 at the call.
    given: [usize; 6],
    /// The same after it.
    found: [usize; 6],
    stack_pointer: usize,
    stack_pointer_after: usize,
    return_address: usize,
    /// Whether the processor is to trap after each instruction of the call.
    step: usize,
}

// A caller all of whose registers are known. Its frame pointer is not one, so what unwinds it has
// to find the stack pointer right.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_caller
    .hidden plimsoll_test_caller
    .type plimsoll_test_caller, @function
plimsoll_test_caller:
    .cfi_startproc
    push rbx
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbx, -16
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -24
    push r12
    .cfi_adjust_cfa_offset 8
    .cfi_offset r12, -32
    push r13
    .cfi_adjust_cfa_offset 8
    .cfi_offset r13, -40
    push r14
    .cfi_adjust_cfa_offset 8
    .cfi_offset r14, -48
    push r15
    .cfi_adjust_cfa_offset 8
    .cfi_offset r15, -56
    sub rsp, 24
    .cfi_adjust_cfa_offset 24
    mov [rsp + 16], rdi
    mov rax, [rdi + 48]
    mov [rsp], rax
    mov rbx, [rdi + 56]
    mov rbp, [rdi + 64]
    mov r12, [rdi + 72]
    mov r13, [rdi + 80]
    mov r14, [rdi + 88]
    mov r15, [rdi + 96]
    mov [rdi + 152], rsp
    lea rax, [rip + 3f]
    mov [rdi + 168], rax
    mov rax, rdi
    mov rdi, [rax]
    mov rsi, [rax + 8]
    mov rdx, [rax + 16]
    mov rcx, [rax + 24]
    mov r8, [rax + 32]
    mov r9, [rax + 40]
    cmp qword ptr [rax + 176], 0
    je 2f
    pushfq
    .cfi_adjust_cfa_offset 8
    or qword ptr [rsp], 0x100
    popfq
    .cfi_adjust_cfa_offset -8
2:
    call syscall@PLT
3:
    pushfq
    .cfi_adjust_cfa_offset 8
    and qword ptr [rsp], -0x101
    popfq
    .cfi_adjust_cfa_offset -8
    mov rdi, [rsp + 16]
    mov [rdi + 160], rsp
    mov [rdi + 104], rbx
    mov [rdi + 112], rbp
    mov [rdi + 120], r12
    mov [rdi + 128], r13
    mov [rdi + 136], r14
    mov [rdi + 144], r15
    add rsp, 24
    .cfi_adjust_cfa_offset -24
    pop r15
    .cfi_adjust_cfa_offset -8
    pop r14
    .cfi_adjust_cfa_offset -8
    pop r13
    .cfi_adjust_cfa_offset -8
    pop r12
    .cfi_adjust_cfa_offset -8
    pop rbp
    .cfi_adjust_cfa_offset -8
    pop rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size plimsoll_test_caller, . - plimsoll_test_caller
    "#
);

const _: () = assert!(size_of::<Known>() == 184);

unsafe extern "C" {
    fn plimsoll_test_caller(known: &mut Known) -> isize;
}

const FRAME_POINTER: usize = 0x2222_0000_0000_2222;

impl Known {
    fn with(arguments: [usize; 6]) -> Self {
        Self {
            number: FUTEX,
            arguments,
            given: [
                0x1111_0000_0000_1111,
                FRAME_POINTER,
                0x3333_0000_0000_3333,
                0x4444_0000_0000_4444,
                0x5555_0000_0000_5555,
                0x6666_0000_0000_6666,
            ],
            ..Self::default()
        }
    }

    /// A wake of nobody.
    fn wake(word: &AtomicU32) -> Self {
        let operation = (libc::FUTEX_WAKE | PRIVATE) as usize;
        Self::with([word.as_ptr() as usize, operation, 1, 0, 0, 0])
    }

    /// A wait that the kernel refuses.
    fn refused(word: &AtomicU32) -> Self {
        let operation = (libc::FUTEX_WAIT | PRIVATE) as usize;
        let other = word.load(Ordering::Relaxed) as usize + 1;
        Self::with([word.as_ptr() as usize, operation, other, 0, 0, 0])
    }

    fn call(&mut self) -> isize {
        // SAFETY: the arguments are those of a call that does nothing; the rest is as C has it.
        unsafe { plimsoll_test_caller(self) }
    }
}

#[test]
fn the_hook_is_told_the_callers_registers() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        let mut known = Known::wake(&word);
        assert_eq!(once(Mode::All, || known.call()), 0);
        let told = last().call;
        assert_eq!(told.return_address, known.return_address);
        assert_eq!(told.stack_pointer, known.stack_pointer);
        assert_eq!(told.frame_pointer, FRAME_POINTER);
        assert_eq!(told.arguments, known.arguments);
    });
}

#[test]
fn the_caller_finds_its_registers_as_they_were() {
    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        for (mut known, result) in [(Known::wake(&word), 0), (Known::refused(&word), -1)] {
            assert_eq!(once(mode, || known.call()), result);
            assert_eq!(known.found, known.given, "{mode:?}");
            assert_eq!(known.stack_pointer_after, known.stack_pointer);
        }
    });
}

#[test]
fn the_hook_is_entered_with_the_stack_aligned() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        assert_eq!(Known::wake(&word).call(), 0);
        assert_eq!((last().entry + size_of::<usize>()) % 16, 0);
    });
}

#[repr(C)]
struct Context {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetGR(context: *mut Context, register: c_int) -> usize;
    fn _Unwind_FindEnclosingFunction(address: *const c_void) -> *const c_void;
}

/// Whether the stack, unwound from here by the tables, has the known caller in it, with its stack
/// and frame pointers right.
fn unwinds_to(caller: Caller) -> bool {
    /// The DWARF number of the frame pointer.
    const RBP: c_int = 6;

    struct Search {
        caller: Caller,
        found: bool,
    }

    extern "C" fn visit(context: *mut Context, search: *mut c_void) -> c_int {
        // SAFETY: both are as they were handed to the unwinder, and by it.
        unsafe {
            let search = &mut *search.cast::<Search>();
            search.found |= _Unwind_GetIP(context) == search.caller.return_address
                && _Unwind_GetCFA(context) == search.caller.stack_pointer
                && _Unwind_GetGR(context, RBP) == FRAME_POINTER;
        }
        0
    }

    let mut search = Search {
        caller,
        found: false,
    };
    // SAFETY: the search outlives the walk.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    search.found
}

/// Where the known caller stands.
#[derive(Clone, Copy)]
struct Caller {
    return_address: usize,
    stack_pointer: usize,
}

#[test]
fn the_hooks_stack_can_be_unwound_through_this_crate() {
    thread_local! {
        static FOUND: Cell<bool> = const { Cell::new(false) };
    }

    extern "C" fn inspect() {
        let told = last().call;
        FOUND.set(unwinds_to(Caller {
            return_address: told.return_address,
            stack_pointer: told.stack_pointer,
        }));
    }

    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        inspect_next(inspect);
        assert_eq!(Known::wake(&word).call(), 0);
        assert!(FOUND.get());
    });
}

/// A profiler, a debugger or a cancellation may interrupt anywhere.
#[test]
fn the_stack_can_be_unwound_from_each_instruction() {
    thread_local! {
        static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
        static STEPS: Cell<usize> = const { Cell::new(0) };
        static LOST_AT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    extern "C" fn stepped(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: what a handler with SA_SIGINFO is given.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let at = registers[libc::REG_RIP as usize] as usize;
        // SAFETY: looks into tables.
        let function = unsafe { _Unwind_FindEnclosingFunction(at as *const c_void) };
        if !std::ptr::eq(function, libc::syscall as *const c_void) {
            return;
        }
        STEPS.set(STEPS.get() + 1);
        if !CALLER.get().is_some_and(unwinds_to) && LOST_AT.get().is_none() {
            LOST_AT.set(Some(at - function as usize));
        }
    }

    /// How many instructions of `syscall` were executed.
    fn step(known: &mut Known) -> usize {
        // Where it stands at each call from here is known once it has called.
        known.call();
        known.step = 1;
        CALLER.set(Some(Caller {
            return_address: known.return_address,
            stack_pointer: known.stack_pointer,
        }));
        STEPS.set(0);
        known.call();
        let caller = CALLER.take().expect("set above");
        assert_eq!(caller.stack_pointer, known.stack_pointer);
        assert_eq!(LOST_AT.take(), None, "at this offset");
        STEPS.get()
    }

    for_each_mode(|mode| {
        let _handled = handle(libc::SIGTRAP, stepped, 0);
        let word = AtomicU32::new(0);
        let passed = step(&mut Known::wake(&word));
        let failed = step(&mut Known::refused(&word));
        // The way past the hook has eleven instructions at least, that to it more.
        assert!(
            passed >= if mode == Mode::Off { 11 } else { 20 },
            "{passed}"
        );
        assert!(failed > passed, "{failed}: sets errno");
    });
}
