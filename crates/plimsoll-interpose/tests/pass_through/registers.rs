//! The caller's registers: as they are told to the hook, and as the caller finds them again; and
//! whether its stack can be unwound.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_interpose::Mode;

use super::harness::{FUTEX, PRIVATE, for_each_mode, in_mode, inspect_next, last, once};
use super::known_caller::{Caller, FRAME_POINTER, Known, step, unwinds_to};

/// A system call's number and its arguments.
type Arguments = [usize; 7];

/// A wake of nobody.
fn wake(word: &AtomicU32) -> Arguments {
    let operation = (libc::FUTEX_WAKE | PRIVATE) as usize;
    [FUTEX, word.as_ptr() as usize, operation, 1, 0, 0, 0]
}

/// A wait that the kernel refuses.
fn refused(word: &AtomicU32) -> Arguments {
    let operation = (libc::FUTEX_WAIT | PRIVATE) as usize;
    let other = word.load(Ordering::Relaxed) as usize + 1;
    [FUTEX, word.as_ptr() as usize, operation, other, 0, 0, 0]
}

fn call(known: &mut Known, arguments: Arguments) -> isize {
    known.call(libc::syscall as *const (), &arguments)
}

#[test]
fn the_hook_is_told_the_callers_registers() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        let mut known = Known::default();
        assert_eq!(once(Mode::All, || call(&mut known, wake(&word))), 0);
        let told = last().call;
        assert_eq!(told.return_address, known.return_address);
        assert_eq!(told.stack_pointer, known.stack_pointer);
        assert_eq!(told.frame_pointer, FRAME_POINTER);
        assert_eq!(told.arguments, known.arguments[1..]);
    });
}

#[test]
fn the_caller_finds_its_registers_as_they_were() {
    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        for (arguments, result) in [(wake(&word), 0), (refused(&word), -1)] {
            // To call is to look at them.
            let mut known = Known::default();
            assert_eq!(once(mode, || call(&mut known, arguments)), result);
        }
    });
}

#[test]
fn the_hook_is_entered_with_the_stack_aligned() {
    in_mode(Mode::All, || {
        let word = AtomicU32::new(0);
        assert_eq!(call(&mut Known::default(), wake(&word)), 0);
        assert_eq!((last().entry + size_of::<usize>()) % 16, 0);
    });
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
        assert_eq!(call(&mut Known::default(), wake(&word)), 0);
        assert!(FOUND.get());
    });
}

unsafe extern "C" {
    fn _Unwind_FindEnclosingFunction(address: *const c_void) -> *const c_void;
}

/// A profiler, a debugger or a cancellation may interrupt anywhere.
#[test]
fn the_stack_can_be_unwound_from_each_instruction() {
    fn within_syscall(at: usize) -> Option<usize> {
        // SAFETY: looks into tables.
        let function = unsafe { _Unwind_FindEnclosingFunction(at as *const c_void) };
        let is_syscall = std::ptr::eq(function, libc::syscall as *const c_void);
        is_syscall.then(|| at - function as usize)
    }

    /// How many instructions of `syscall` were executed.
    fn steps(arguments: Arguments) -> usize {
        step(libc::syscall as *const (), &arguments, within_syscall).1
    }

    for_each_mode(|mode| {
        let word = AtomicU32::new(0);
        let passed = steps(wake(&word));
        let failed = steps(refused(&word));
        // The way past the hook has eleven instructions at least, that to it more.
        assert!(
            passed >= if mode == Mode::Off { 11 } else { 20 },
            "{passed}"
        );
        assert!(failed > passed, "{failed}: sets errno");
    });
}
