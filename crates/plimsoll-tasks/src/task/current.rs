//! The task that the calling thread polls.

use std::cell::Cell;
use std::ptr;

use plimsoll_sys::primitives::{AtomicBool, Ordering, compiler_fence};

use super::slot::Slot;
use plimsoll_core::label::{self, Labels};
use plimsoll_core::stack::{self, Registers, Start};

thread_local! {
    static POLLING: Cell<*const Polling> = const { Cell::new(ptr::null()) };
}

/// Whether stacks are captured.
static STACKS: AtomicBool = AtomicBool::new(true);

pub(super) fn set_stacks(wanted: bool) -> bool {
    STACKS.swap(wanted, Ordering::Relaxed)
}

/// A poll in progress. It lies in the frame of the poll, so that the task's part of the stack is
/// the part below it.
pub(super) struct Polling {
    task: &'static Slot,
    /// The poll of which this one is a part.
    outer: *const Polling,
    /// The labels outside of the poll.
    labels: Labels,
    /// The labels at the start of the poll.
    begun_with: Labels,
}

impl Polling {
    pub(super) fn new(task: &'static Slot) -> Self {
        let begun_with = label::within_spans(Labels::of_number(task.labels()));
        Self {
            task,
            outer: POLLING.get(),
            labels: label::set(begun_with),
            begun_with,
        }
    }

    /// Makes this the calling thread's poll. It must not move until [`Polling::leave`], which must
    /// follow.
    pub(super) fn enter(&self) {
        // Signal handlers on this thread read the poll.
        compiler_fence(Ordering::Release);
        POLLING.set(self);
    }

    /// Restores the outer poll as the calling thread's.
    pub(super) fn leave(&self) {
        POLLING.set(self.outer);
        compiler_fence(Ordering::Release);
        let labels = label::set(self.labels);
        if labels != self.begun_with {
            // The task keeps the labels that it set during the poll.
            self.task.set_labels(labels.number());
        }
    }

    pub(super) fn is_nested(&self) -> bool {
        !self.outer.is_null()
    }
}

/// Returns the task that the calling thread polls; the innermost, if tasks are nested.
pub(super) fn task() -> Option<&'static Slot> {
    // SAFETY: if set, the pointer is to a `Polling` further up this thread's stack, which `leave`
    // removes before it moves.
    unsafe { POLLING.get().as_ref() }.map(|polling| polling.task)
}

/// Returns a poll of `task` in which the calling thread is.
#[inline]
pub(super) fn poll_of(task: &'static Slot) -> Option<&'static Polling> {
    let mut polling = POLLING.get();
    loop {
        // SAFETY: a poll in progress is not moved before it removes itself from `POLLING`; its
        // outer polls live at least as long.
        let found = unsafe { polling.as_ref() }?;
        if ptr::eq(found.task, task) {
            return Some(found);
        }
        polling = found.outer;
    }
}

impl Polling {
    /// Adds the task's present stack to its places of waiting.
    #[inline]
    pub(super) fn note_stack(&self) {
        if STACKS.load(Ordering::Relaxed) {
            let start = Start::Limited(Registers::here(), ptr::from_ref(self) as usize);
            if let Some(name) = stack::name_of(start) {
                self.task.add_stack(name, self.labels_here().number());
            }
        }
    }

    /// Returns the task's labels at this point of its poll, without those of tasks nested in it.
    fn labels_here(&self) -> Labels {
        let mut labels = label::current();
        let mut polling = POLLING.get();
        while !ptr::eq(polling, self) {
            // SAFETY: this poll and those within it are in progress, so none of them has moved.
            let within = unsafe { &*polling };
            labels = within.labels;
            polling = within.outer;
        }
        labels
    }
}
