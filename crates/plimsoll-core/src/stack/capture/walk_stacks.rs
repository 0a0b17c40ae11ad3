//! Stacks for walks of threads that run on a small stack, such as a coroutine's.
//!
//! A walk by unwind tables takes some KiB of stack. A program may make coroutine stacks of 4 KiB, whose bounds are
//! unknown: so on each stack but the thread's first one, a walk runs on a stack of the slot that the capture uses.

use std::ffi::c_void;

use plimsoll_process::handler_stacks::HandlerStacks;
use plimsoll_process::thread_stack;
use plimsoll_sys::arch::call_on_stack;

/// More stack in bytes than a walk takes.
const WALK_BYTES: usize = 16 << 10;

/// The stacks, for the first slots of the pool.
static STACKS: HandlerStacks<8> = HandlerStacks::new();

/// Calls `work`, a walk by the owner of the slot of that number. Returns `None` if it has neither room on the calling
/// thread's stack nor another stack. May be called anywhere.
pub(super) fn with_room<R>(number: usize, work: impl FnOnce() -> R) -> Option<R> {
    if thread_stack::has_room(WALK_BYTES) {
        return Some(work());
    }
    STACKS.make();
    let top = STACKS.top(number)?;
    let mut call = Call {
        work: Some(work),
        result: None,
    };
    // SAFETY: only the owner of the slot uses this stack. `run` receives the `Call` that it takes, and does not unwind.
    unsafe { call_on_stack(top, run_of(&call), (&raw mut call).cast()) };
    call.result
}

/// A walk and its result.
struct Call<F, R> {
    work: Option<F>,
    result: Option<R>,
}

/// Returns the function that makes a call.
fn run_of<F: FnOnce() -> R, R>(_: &Call<F, R>) -> extern "C" fn(*mut c_void) {
    run::<F, R>
}

extern "C" fn run<F: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: `with_room` passes its `Call`, and waits meanwhile.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.work.take().map(|work| work());
}
