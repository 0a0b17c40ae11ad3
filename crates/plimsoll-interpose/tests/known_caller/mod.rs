//! A caller whose registers are known: it finds them again as they were, and stacks can be unwound
//! to it, from each instruction of what it calls, too.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

/// What it is to call, and what it saw.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Known {
    function: usize,
    pub arguments: [usize; 7],
    /// The registers of [`GIVEN`], after the call.
    found: [usize; 6],
    pub stack_pointer: usize,
    stack_pointer_after: usize,
    pub return_address: usize,
    /// Whether the processor is to trap after each instruction of the call.
    step: usize,
}

pub const FRAME_POINTER: usize = 0x2222_0000_0000_2222;

/// What rbx, rbp, r12 to r15 are at the call.
const GIVEN: [usize; 6] = [
    0x1111_0000_0000_1111,
    FRAME_POINTER,
    0x3333_0000_0000_3333,
    0x4444_0000_0000_4444,
    0x5555_0000_0000_5555,
    0x6666_0000_0000_6666,
];

// Its frame pointer is not one, so what unwinds it has to find the stack pointer right.
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
    mov rax, [rdi + 56]
    mov [rsp], rax
    mov [rdi + 112], rsp
    lea rax, [rip + 3f]
    mov [rdi + 128], rax
    mov rax, rdi
    mov rdi, [rax + 8]
    mov rsi, [rax + 16]
    mov rdx, [rax + 24]
    mov rcx, [rax + 32]
    mov r8, [rax + 40]
    mov r9, [rax + 48]
    mov rbx, {rbx}
    mov rbp, {rbp}
    mov r12, {r12}
    mov r13, {r13}
    mov r14, {r14}
    mov r15, {r15}
    cmp qword ptr [rax + 136], 0
    mov rax, [rax]
    je 2f
    pushfq
    .cfi_adjust_cfa_offset 8
    or qword ptr [rsp], 0x100
    popfq
    .cfi_adjust_cfa_offset -8
2:
    call rax
3:
    pushfq
    .cfi_adjust_cfa_offset 8
    and qword ptr [rsp], -0x101
    popfq
    .cfi_adjust_cfa_offset -8
    mov rdi, [rsp + 16]
    mov [rdi + 120], rsp
    mov [rdi + 64], rbx
    mov [rdi + 72], rbp
    mov [rdi + 80], r12
    mov [rdi + 88], r13
    mov [rdi + 96], r14
    mov [rdi + 104], r15
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
    "#,
    rbx = const GIVEN[0],
    rbp = const GIVEN[1],
    r12 = const GIVEN[2],
    r13 = const GIVEN[3],
    r14 = const GIVEN[4],
    r15 = const GIVEN[5],
);

const _: () = assert!(size_of::<Known>() == 144);

unsafe extern "C" {
    fn plimsoll_test_caller(known: &mut Known) -> isize;
}

impl Known {
    /// Calls a function, which is to leave the registers as they are.
    // In a frame of its own, so that it stands in the same place each time.
    #[inline(never)]
    pub fn call(&mut self, function: *const (), arguments: &[usize]) -> isize {
        self.function = function as usize;
        self.arguments[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: the arguments are those of the function; the rest is as C has it.
        let result = unsafe { plimsoll_test_caller(self) };
        assert_eq!(self.found, GIVEN, "registers are kept");
        assert_eq!(self.stack_pointer_after, self.stack_pointer);
        result
    }

    /// Where it stood in its last call, and stands in the next from the same place.
    pub fn caller(&self) -> Caller {
        Caller {
            return_address: self.return_address,
            stack_pointer: self.stack_pointer,
        }
    }
}

/// For it to call, to see where it stands.
pub extern "C" fn returns() {}

/// Where the known caller stands.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub return_address: usize,
    pub stack_pointer: usize,
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
}

/// Whether the stack, unwound from here by the tables, has the known caller in it, with its stack
/// and frame pointers right.
pub fn unwinds_to(caller: Caller) -> bool {
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

/// How far an address is behind the start of the function that is stepped through, if it is in it.
pub type Within = fn(usize) -> Option<usize>;

thread_local! {
    static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
    static WITHIN: Cell<Within> = const { Cell::new(|_| None) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LOST_AT: Cell<Option<usize>> = const { Cell::new(None) };
}

extern "C" fn stepped(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what a handler with SA_SIGINFO is given.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let Some(offset) = WITHIN.get()(registers[libc::REG_RIP as usize] as usize) else {
        return;
    };
    STEPS.set(STEPS.get() + 1);
    if !CALLER.get().is_some_and(unwinds_to) && LOST_AT.get().is_none() {
        LOST_AT.set(Some(offset));
    }
}

/// Calls a function step by step, and unwinds the stack at each. Returns what the function did, and
/// how many instructions of it were executed.
pub fn step(function: *const (), arguments: &[usize], within: Within) -> (isize, usize) {
    let mut known = Known::default();
    // SAFETY: of zeros, the action has an empty mask; the handler only looks.
    let before = unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        let mut before: libc::sigaction = mem::zeroed();
        action.sa_sigaction = stepped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, &mut before), 0);
        before
    };
    known.call(returns as *const (), &[]);
    let caller = known.caller();
    CALLER.set(Some(caller));
    WITHIN.set(within);
    STEPS.set(0);
    known.step = 1;
    let result = known.call(function, arguments);
    CALLER.set(None);
    // SAFETY: what it was before.
    let restored = unsafe { libc::sigaction(libc::SIGTRAP, &before, ptr::null_mut()) };
    assert_eq!(restored, 0);
    assert_eq!(caller.stack_pointer, known.stack_pointer);
    assert_eq!(LOST_AT.take(), None, "at this offset");
    (result, STEPS.get())
}
