//! A caller with known register values. It checks that a call preserves them. Stacks can be unwound
//! to it from each instruction of the called function.

pub mod arch;

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use arch::REGISTERS;

/// The call to make, and the registers recorded around it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Known {
    function: usize,
    pub arguments: [usize; 7],
    pub stack_pointer: usize,
    stack_pointer_after: usize,
    pub return_address: usize,
    /// Whether the processor traps after each instruction of the call, where programs can set that.
    step: usize,
    /// The registers that functions preserve: before the call, then after it.
    registers: [usize; REGISTERS],
}

/// The values of the registers at the call.
const GIVEN: [usize; REGISTERS] = {
    let mut given = [0; REGISTERS];
    let mut number = 0;
    while number < REGISTERS {
        given[number] = 0x1111_0000_0000_1111 * (number + 1);
        number += 1;
    }
    given
};

pub const FRAME_POINTER: usize = GIVEN[arch::FRAME_POINTER];

// The frame pointer does not hold a frame address, so an unwinder must compute the stack pointer from the tables.
global_asm!(
    r#"
    .text
    .globl plimsoll_test_caller
    .hidden plimsoll_test_caller
    .type plimsoll_test_caller, %function
plimsoll_test_caller:
    "#,
    arch::caller!(),
    r#"
    .size plimsoll_test_caller, . - plimsoll_test_caller
    "#
);

unsafe extern "C" {
    fn plimsoll_test_caller(known: &mut Known) -> isize;
}

impl Known {
    /// Calls a function, which must preserve the registers.
    // Not inlined: a separate frame keeps the call at the same place each time.
    #[inline(never)]
    pub fn call(&mut self, function: *const (), arguments: &[usize]) -> isize {
        self.function = function as usize;
        self.registers = GIVEN;
        self.arguments[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: each caller passes arguments that its function accepts; the assembly follows the
        // C calling convention.
        let result = unsafe { plimsoll_test_caller(self) };
        assert_eq!(self.registers, GIVEN, "registers are kept");
        assert_eq!(self.stack_pointer_after, self.stack_pointer);
        result
    }

    /// Returns the position of the last call, which the next call from the same place repeats.
    pub fn caller(&self) -> Caller {
        Caller {
            return_address: self.return_address,
            stack_pointer: self.stack_pointer,
        }
    }
}

/// An empty function: a call of it records the position of the known caller.
pub extern "C" fn returns() {}

/// The position of the known caller.
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

/// Returns whether unwinding from here by the tables reaches the known caller with its stack
/// pointer and frame pointer intact.
pub fn unwinds_to(caller: Caller) -> bool {
    struct Search {
        caller: Caller,
        found: bool,
    }

    extern "C" fn visit(context: *mut Context, search: *mut c_void) -> c_int {
        // SAFETY: the unwinder passes a valid context and the pointer to `Search` that it received
        // below.
        unsafe {
            let search = &mut *search.cast::<Search>();
            search.found |= _Unwind_GetIP(context) == search.caller.return_address
                && _Unwind_GetCFA(context) == search.caller.stack_pointer
                && _Unwind_GetGR(context, arch::FRAME_POINTER_NUMBER) == FRAME_POINTER;
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
    static FUNCTION: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static STEPS: Cell<usize> = const { Cell::new(0) };
    static LOST_AT: Cell<Option<usize>> = const { Cell::new(None) };
}

extern "C" fn stepped(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `ucontext_t` to a handler registered with SA_SIGINFO.
    let at = arch::instruction(unsafe { &*context.cast() });
    let Some(caller) = CALLER.get() else {
        return arch::leave(at);
    };
    let (start, size) = FUNCTION.get();
    let offset = at.wrapping_sub(start);
    if offset >= size {
        return;
    }
    arch::pause();
    STEPS.set(STEPS.get() + 1);
    if !unwinds_to(caller) && LOST_AT.get().is_none() {
        LOST_AT.set(Some(offset));
    }
    arch::go_on(at);
}

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Returns the size of a function of the program that libraries call, too.
fn size_of_function(function: *const ()) -> usize {
    const RTLD_DL_SYMENT: c_int = 1;
    let mut symbol = ptr::null_mut();
    // SAFETY: an all-zero `Dl_info` is valid, and both results are written to local variables. If the
    // symbol is found, it lies in the program's table of symbols.
    unsafe {
        let mut info: libc::Dl_info = mem::zeroed();
        let found = dladdr1(function.cast(), &mut info, &mut symbol, RTLD_DL_SYMENT);
        assert!(found != 0 && !symbol.is_null(), "the function has a symbol");
        assert_eq!(info.dli_saddr.cast_const(), function.cast());
        (*symbol.cast::<libc::Elf64_Sym>()).st_size as usize
    }
}

/// Calls a function in single steps and unwinds the stack at each of its instructions. Returns the
/// function's result and the number of its instructions that were executed.
pub fn step(function: *const (), arguments: &[usize]) -> (isize, usize) {
    let mut known = Known::default();
    // SAFETY: an all-zero action is valid and has an empty mask; the handler changes no registers.
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
    let size = size_of_function(function);
    CALLER.set(Some(caller));
    FUNCTION.set((function as usize, size));
    STEPS.set(0);
    known.step = 1;
    arch::begin(function as usize, size);
    let result = known.call(function, arguments);
    arch::end();
    CALLER.set(None);
    // SAFETY: restores the action that `sigaction` returned above.
    let restored = unsafe { libc::sigaction(libc::SIGTRAP, &before, ptr::null_mut()) };
    assert_eq!(restored, 0);
    assert_eq!(caller.stack_pointer, known.stack_pointer);
    assert_eq!(LOST_AT.take(), None, "at this offset");
    (result, STEPS.get())
}
