//! The waker that a task passes to the futures that it polls.
//!
//! It points to the slot, which holds the executor's waker. All registrations of one executor's
//! waker are the same waker, so `will_wake` is true of them, and a future that is polled again need
//! not register again. While registrations exist, the slot holds one clone of the executor's waker,
//! and otherwise none. So an executor that frees a task when its last waker is dropped still does
//! so.
//!
//! The awaited primitives clone the waker in the middle of the poll, and this is where the stack is
//! captured. They clone, use and drop it with their own locks held, so nothing here waits,
//! allocates or panics.

use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::slot::Slot;
use super::{current, times};

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, release);

/// Returns the waker of a slot, for one poll. It is not a registration, and must not release one.
pub(super) fn waker(slot: &'static Slot) -> ManuallyDrop<Waker> {
    // SAFETY: the functions meet the contract of `RawWakerVTable`: any thread may call them, as
    // long as each waker has a registration or the poll lasts.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw(slot)) })
}

fn raw(slot: &'static Slot) -> RawWaker {
    RawWaker::new(std::ptr::from_ref(slot).cast(), &VTABLE)
}

/// # Safety
/// `data` is the data pointer of a waker made in this module.
unsafe fn slot_of(data: *const ()) -> &'static Slot {
    // SAFETY: by this function's contract `data` was made from a `&'static Slot`; slots are never
    // freed.
    unsafe { &*data.cast::<Slot>() }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the vtable calls this only with the data of a waker made in this module.
    let slot = unsafe { slot_of(data) };
    let task = slot.task();
    task.about_to_change();
    let poll = current::poll_of(task);
    if slot.register(poll.is_some()).is_none() {
        return clone_elsewhere(task);
    }
    if let Some(poll) = poll {
        poll.note_stack();
    }
    raw(slot)
}

/// Clones a waker that was lent to another thread in the middle of a poll, if that thread is the
/// first to clone it.
#[cold]
fn clone_elsewhere(task: &'static Slot) -> RawWaker {
    let lent = task.lent();
    match task.register_elsewhere(lent) {
        Some(auxiliary) => raw(auxiliary),
        None => {
            // No slot is free, so the clone is one of the executor's own waker.
            task.control.mark_unmanaged();
            let lent = ManuallyDrop::new(lent.clone());
            RawWaker::new(lent.data(), lent.vtable())
        }
    }
}

#[inline]
fn begin_wake(task: &Slot) {
    if times::are_wanted() {
        times::begin_wake(task);
    } else {
        task.wake_begins();
    }
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the vtable calls this only with the data of a waker made in this module.
    let slot = unsafe { slot_of(data) };
    let task = slot.task();
    task.about_to_change();
    begin_wake(task);
    // SAFETY: the waker that was woken is a registration of `slot`, and is released only below.
    unsafe { slot.wake_inner() };
    if std::ptr::eq(slot, task) {
        slot.release_after_wake();
    } else {
        task.wake_ends();
        slot.release();
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the vtable calls this only with the data of a waker made in this module.
    let slot = unsafe { slot_of(data) };
    let task = slot.task();
    task.about_to_change();
    begin_wake(task);
    if let Some(poll) = current::poll_of(task) {
        if !task.has_stack() {
            // The task wakes itself and has registered nowhere.
            poll.note_stack();
        }
        task.lent().wake_by_ref();
    } else if slot.register(false).is_some() {
        // SAFETY: the registration just added keeps the waker. The caller's own waker may not be a
        // registration, but the one that was lent for a poll.
        unsafe { slot.wake_inner() };
        slot.release();
    } else {
        task.lent().wake_by_ref();
    }
    task.wake_ends();
}

unsafe fn release(data: *const ()) {
    // SAFETY: the vtable calls this only with the data of a waker made in this module.
    let slot = unsafe { slot_of(data) };
    slot.task().about_to_change();
    slot.release();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::task::slot::control::MAX_REGISTRATIONS;
    use crate::task::track;
    use std::os::unix::process::ExitStatusExt;
    use std::pin::pin;
    use std::process::Command;
    use std::task::{Context, Poll};

    /// Polls a task whose count of registrations is two below `count`; `waker` is one of them.
    fn with_registrations(count: u32, work: impl FnOnce(&Waker)) {
        let mut work = Some(work);
        let task = track(std::future::poll_fn(move |context| {
            let waker = context.waker().clone();
            let slot = current::task().expect("the task is being polled");
            let there = slot.control.set_registrations(count - 2);
            (work.take().expect("it is polled once"))(&waker);
            slot.control.set_registrations(there);
            drop(waker);
            Poll::Ready(())
        }));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(task).poll(&mut context).is_ready());
    }

    /// Runs the test of that name in another process, which must die of SIGABRT.
    fn aborts(name: &str, work: fn()) {
        const MARK: &str = "PLIMSOLL_TEST_ABORTS";
        if std::env::var_os(MARK).is_some() {
            // SAFETY: sets a limit of the process, from a value that lives for the call.
            unsafe {
                let none = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                libc::setrlimit(libc::RLIMIT_CORE, &none);
            }
            return work();
        }
        let program = std::env::current_exe().expect("the test has a path");
        let name = format!("task::registration::tests::{name}");
        let output = Command::new(program)
            .args([&name, "--exact", "--test-threads=1"])
            .env(MARK, "1")
            .output()
            .expect("the test can be run");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    }

    #[test]
    fn one_registration_above_the_most_aborts_the_process() {
        aborts("one_registration_above_the_most_aborts_the_process", || {
            with_registrations(MAX_REGISTRATIONS, |waker| {
                for _ in 0..3 {
                    std::mem::forget(waker.clone());
                }
            });
        });
    }

    /// The maximum number of registrations is accepted, and all of them can be released.
    #[test]
    fn the_most_registrations_are_accepted() {
        with_registrations(MAX_REGISTRATIONS, |waker| {
            let clones = [waker.clone(), waker.clone()];
            drop(clones);
        });
    }

    #[test]
    fn no_number_of_forgotten_wakers_wraps_to_none() {
        aborts("no_number_of_forgotten_wakers_wraps_to_none", || {
            with_registrations(u32::MAX, |waker| {
                for _ in 0..4 {
                    std::mem::forget(waker.clone());
                }
            });
        });
    }
}
