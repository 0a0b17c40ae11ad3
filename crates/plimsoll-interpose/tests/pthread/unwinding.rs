//! Whether the stack can be unwound: from where the hooks are told that it can, and from each
//! instruction.

use std::cell::Cell;
use std::ffi::c_int;

use plimsoll_interpose::pthread::{Call, Mode};

use super::harness::{Functions, MODES, Object, in_mode, inspect_next};
use super::known_caller::{Caller, FRAME_POINTER, Known, returns, step, unwinds_to};

thread_local! {
    static FUNCTION: Cell<usize> = const { Cell::new(0) };
}

/// No function of these is longer.
const LONGEST: usize = 512;

fn within_function(at: usize) -> Option<usize> {
    let offset = at.wrapping_sub(FUNCTION.get());
    (offset < LONGEST).then_some(offset)
}

/// Calls it step by step; how many instructions of the function itself were executed.
fn steps(function: *const (), arguments: &[usize], expected: c_int) -> usize {
    FUNCTION.set(function as usize);
    let (result, steps) = step(function, arguments, within_function);
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
                // It has it.
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
    thread_local! {
        static CALLER: Cell<Option<Caller>> = const { Cell::new(None) };
    }

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
        known.call(returns as *const (), &[]);
        CALLER.set(Some(known.caller()));
        let unlock = functions.unlock as *const ();
        FUNCTION.set(unlock as usize);
        // SAFETY: it is a mutex.
        assert_eq!(unsafe { (functions.lock)(mutex.at()) }, 0);
        inspect_next(inspect);
        assert_eq!(known.call(unlock, &[mutex.at() as usize]), 0);
        assert_eq!(FUNCTION.get(), 0, "it was looked at");
    });
}
