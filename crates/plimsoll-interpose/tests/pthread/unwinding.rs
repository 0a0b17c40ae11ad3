//! Whether the stack can be unwound: from where the hooks are told that it can, and from each
//! instruction.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;

use plimsoll_interpose::pthread::{Call, Mode};

use super::harness::{Functions, MODES, Object, in_mode, inspect_next};

/// What the known caller is to call, and what it saw.
#[repr(C)]
#[derive(Debug, Default)]
struct Known {
    function: usize,
    arguments: [usize; 3],
    stack_pointer: usize,
    return_address: usize,
    /// Whether the processor is to trap after each instruction of the call.
    step: usize,
    /// rbx, rbp, r12 to r15 after the call.
    found: [usize; 6],
}

const FRAME_POINTER: usize = 0x2222_0000_0000_2222;

/// What those registers are before the call.
const GIVEN: [usize; 6] = [1, FRAME_POINTER, 3, 4, 5, 6];

// A caller whose registers are known. Its frame pointer is not one, so what unwinds it has to find
// the stack pointer right.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_pthread_caller
    .hidden plimsoll_test_pthread_caller
    .type plimsoll_test_pthread_caller, @function
plimsoll_test_pthread_caller:
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
    sub rsp, 8
    .cfi_adjust_cfa_offset 8
    mov [rsp], rdi
    mov [rdi + 32], rsp
    lea rax, [rip + 3f]
    mov [rdi + 40], rax
    mov rax, rdi
    mov rdi, [rax + 8]
    mov rsi, [rax + 16]
    mov rdx, [rax + 24]
    mov ebx, 1
    mov rbp, {frame_pointer}
    mov r12d, 3
    mov r13d, 4
    mov r14d, 5
    mov r15d, 6
    cmp qword ptr [rax + 48], 0
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
    mov rdi, [rsp]
    mov [rdi + 56], rbx
    mov [rdi + 64], rbp
    mov [rdi + 72], r12
    mov [rdi + 80], r13
    mov [rdi + 88], r14
    mov [rdi + 96], r15
    add rsp, 8
    .cfi_adjust_cfa_offset -8
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
    .size plimsoll_test_pthread_caller, . - plimsoll_test_pthread_caller
    "#,
    frame_pointer = const FRAME_POINTER,
);

const _: () = assert!(size_of::<Known>() == 104);

unsafe extern "C" {
    fn plimsoll_test_pthread_caller(known: &mut Known) -> c_int;
}

impl Known {
    fn call(&mut self, function: *const (), arguments: &[usize], step: bool) -> c_int {
        self.function = function as usize;
        self.arguments[..arguments.len()].copy_from_slice(arguments);
        self.step = step.into();
        // SAFETY: the arguments are those of the function.
        let result = unsafe { plimsoll_test_pthread_caller(self) };
        assert_eq!(self.found, GIVEN, "registers are kept");
        result
    }

    fn caller(&self) -> Caller {
        Caller {
            return_address: self.return_address,
            stack_pointer: self.stack_pointer,
        }
    }
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

/// Where the known caller stands.
#[derive(Clone, Copy, Debug)]
struct Caller {
    return_address: usize,
    stack_pointer: usize,
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

thread_local! {
    static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LOST_AT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// No function of these is longer.
const LONGEST: usize = 512;

extern "C" fn stepped(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: what a handler with SA_SIGINFO is given.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as usize;
    let offset = at.wrapping_sub(FUNCTION.get());
    if offset >= LONGEST {
        return;
    }
    STEPS.set(STEPS.get() + 1);
    if !CALLER.get().is_some_and(unwinds_to) && LOST_AT.get().is_none() {
        LOST_AT.set(Some(offset));
    }
}

fn handle_steps() {
    // SAFETY: of zeros, it has no flags and an empty mask; the handler only looks.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stepped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()), 0);
    }
}

/// Calls it step by step; how many instructions of the function itself were executed.
fn step(function: *const (), arguments: &[usize], expected: c_int) -> usize {
    let mut known = Known::default();
    // Where it stands at each call from here is known once it has called.
    let returns = function_that_returns as *const ();
    known.call(returns, &[0], false);
    CALLER.set(Some(known.caller()));
    FUNCTION.set(function as usize);
    STEPS.set(0);
    assert_eq!(known.call(function, arguments, true), expected);
    assert_eq!(LOST_AT.take(), None, "at this offset");
    STEPS.get()
}

extern "C" fn function_that_returns() -> c_int {
    0
}

#[test]
fn the_stack_can_be_unwound_from_each_instruction() {
    handle_steps();
    let functions = Functions::linked();
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let mutex = Object::mutex(libc::PTHREAD_MUTEX_ERRORCHECK, 0, false);
            let condition = Object::new();
            let over = libc::timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            let (condition, mutex) = (condition.at() as usize, mutex.at() as usize);
            let (time, clock) = (&raw const over as usize, libc::CLOCK_REALTIME as usize);
            let steps = [
                step(functions.lock as *const (), &[mutex], 0),
                // It has it.
                step(functions.lock as *const (), &[mutex], libc::EDEADLK),
                step(
                    functions.clock_lock as *const (),
                    &[mutex, clock, time],
                    libc::EDEADLK,
                ),
                step(
                    functions.timed_wait as *const (),
                    &[condition, mutex, time],
                    libc::ETIMEDOUT,
                ),
                step(functions.broadcast as *const (), &[condition], 0),
                step(functions.unlock as *const (), &[mutex], 0),
            ];
            let least = match (mode, waited_for) {
                // The jump.
                (Mode::Off, _) => [1, 1, 1, 1, 1, 1],
                (Mode::LockWaits, _) => [4, 25, 35, 1, 1, 1],
                (Mode::All, false) => [6, 25, 35, 25, 6, 6],
                (Mode::All, true) => [6, 25, 35, 25, 25, 25],
            };
            for (steps, least) in steps.into_iter().zip(least) {
                assert!(steps >= least, "{mode:?}: {steps} of {least}");
                assert!(mode != Mode::Off || steps == 1, "{steps} instructions");
            }
        });
    }
}

/// From the registers that the hooks are told, the function's own frame and then its caller's are
/// found: by the chain of frame pointers, here.
#[test]
fn the_hooks_are_told_where_the_function_stands() {
    fn inspect(call: &Call) {
        let caller = CALLER.get().expect("it was set");
        let function = FUNCTION.get();
        assert!(call.instruction.wrapping_sub(function) < LONGEST);
        let frame = call.frame_pointer as *const usize;
        // SAFETY: the frame is there as long as the call.
        unsafe {
            assert_eq!(frame.read(), FRAME_POINTER);
            assert_eq!(frame.add(1).read(), caller.return_address);
            assert_eq!(frame.add(2) as usize, caller.stack_pointer);
        }
        // And by the tables.
        assert!(unwinds_to(caller));
        FUNCTION.set(0);
    }

    in_mode(Mode::All, true, || {
        let functions = Functions::linked();
        let mutex = Object::new();
        let mut known = Known::default();
        known.call(function_that_returns as *const (), &[0], false);
        CALLER.set(Some(known.caller()));
        let unlock = functions.unlock as *const ();
        FUNCTION.set(unlock as usize);
        // SAFETY: it is a mutex.
        assert_eq!(unsafe { (functions.lock)(mutex.at()) }, 0);
        inspect_next(inspect);
        assert_eq!(known.call(unlock, &[mutex.at() as usize], false), 0);
        assert_eq!(FUNCTION.get(), 0, "it was looked at");
    });
}
