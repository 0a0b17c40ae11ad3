//! Unwinding of the stack: from the positions that the hooks receive, and from each instruction.

use std::cell::Cell;
use std::ffi::c_int;

use plimsoll_interpose::pthread::{Call, Mode};

use super::harness::{Functions, MODES, Object, in_mode, inspect_next};
use super::known_caller::arch::JUMP;
use super::known_caller::{Caller, FRAME_POINTER, Known, returns, step, unwinds_to};

thread_local! {
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
}

/// An upper bound for the length of these functions.
const LONGEST: usize = 512;

/// Calls the function in single steps; returns the number of its own instructions that were
/// executed.
fn steps(function: *const (), arguments: &[usize], expected: c_int) -> usize {
    let (result, steps) = step(function, arguments);
    assert_eq!(result as c_int, expected);
    steps
}

#[test]
fn the_stack_can_be_unwound_from_each_instruction() {
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
                steps(functions.lock as *const (), &[mutex], 0),
                // The thread already holds the mutex.
                steps(functions.lock as *const (), &[mutex], libc::EDEADLK),
                steps(
                    functions.clock_lock as *const (),
                    &[mutex, clock, time],
                    libc::EDEADLK,
                ),
                steps(
                    functions.timed_wait as *const (),
                    &[condition, mutex, time],
                    libc::ETIMEDOUT,
                ),
                steps(functions.broadcast as *const (), &[condition], 0),
                steps(functions.unlock as *const (), &[mutex], 0),
            ];
            let least = match (mode, waited_for) {
                // The jump to the C library.
                (Mode::Off, _) => [JUMP; 6],
                (Mode::LockWaits, _) => [4, 25, 35, JUMP, JUMP, JUMP],
                (Mode::All, false) => [6, 25, 35, 25, 6, 6],
                (Mode::All, true) => [6, 25, 35, 25, 25, 25],
            };
            for (steps, least) in steps.into_iter().zip(least) {
                assert!(steps >= least, "{mode:?}: {steps} of {least}");
                assert!(mode != Mode::Off || steps == JUMP, "{steps} instructions");
            }
        });
    }
}

/// The registers that the hooks receive lead to the function's own frame, then to its caller's, by
/// the chain of frame pointers.
#[test]
fn the_hooks_receive_the_position_of_the_function() {
    thread_local! {
        static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
    }

    fn inspect(call: &Call) {
        let caller = CALLER.get().expect("it was set");
        let function = FUNCTION.get();
        assert!(call.instruction.wrapping_sub(function) < LONGEST);
        let frame = call.frame_pointer as *const usize;
        // SAFETY: the frame exists as long as the call.
        unsafe {
            assert_eq!(frame.read(), FRAME_POINTER);
            assert_eq!(frame.add(1).read(), caller.return_address);
            assert_eq!(frame.add(2) as usize, caller.stack_pointer);
        }
        // The unwind tables lead there too.
        assert!(unwinds_to(caller));
        FUNCTION.set(0);
    }

    in_mode(Mode::All, true, || {
        let functions = Functions::linked();
        let mutex = Object::new();
        let mut known = Known::default();
        known.call(returns as *const (), &[]);
        CALLER.set(Some(known.caller()));
        let unlock = functions.unlock as *const ();
        FUNCTION.set(unlock as usize);
        // SAFETY: the object is a mutex.
        assert_eq!(unsafe { (functions.lock)(mutex.at()) }, 0);
        inspect_next(inspect);
        assert_eq!(known.call(unlock, &[mutex.at() as usize]), 0);
        assert_eq!(FUNCTION.get(), 0, "the personality routine ran");
    });
}
