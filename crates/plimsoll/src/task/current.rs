//! Which task the calling thread polls.

use std::cell::Cell;
use std::ptr;

use super::slot::Slot;
use crate::label::{self, Labels};
use crate::primitives::{AtomicBool, Ordering};
use crate::stack::{self, Registers, Start};

thread_local! {
    static POLLING: Cell<*const Polling> = const { Cell::new(ptr::null()) };
}

/// Whether stacks are taken.
static STACKS: AtomicBool = AtomicBool::new(true);

pub(super) fn set_stacks(wanted: bool) -> bool {
    STACKS.swap(wanted, Ordering::Relaxed)
}

/// A poll that is under way. It lies in the frame of the poll, so that the part of the stack which
/// is the task's is what lies below it.
pub(super) struct Polling {
    task: &'static Slot,
    /// The poll that this one is part of.
    outer: *const Polling,
    /// The labels outside of the poll.
    labels: Labels,
    /// Those that the poll began with.
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

    /// Makes it the calling thread's. It must not move until [`Polling::leave`], which must follow.
    pub(super) fn enter(&self) {
        POLLING.set(self);
    }

    /// Makes the one outside of it the calling thread's again.
    pub(super) fn leave(&self) {
        POLLING.set(self.outer);
        let labels = label::set(self.labels);
        if labels != self.begun_with {
            // What the task labelled itself with, it keeps.
            self.task.set_labels(labels.number());
        }
    }

    pub(super) fn is_nested(&self) -> bool {
        !self.outer.is_null()
    }
}

/// The task that the calling thread polls; of several, the innermost.
pub(super) fn task() -> Option<&'static Slot> {
    // SAFETY: if it is set, it points to a `Polling` that lives further up the stack.
    unsafe { POLLING.get().as_ref() }.map(|polling| polling.task)
}

/// A poll of `task` that the calling thread is in.
#[inline]
pub(super) fn poll_of(task: &'static Slot) -> Option<&'static Polling> {
    let mut polling = POLLING.get();
    loop {
        // SAFETY: as above, and so are those outside of it.
        let found = unsafe { polling.as_ref() }?;
        if ptr::eq(found.task, task) {
            return Some(found);
        }
        polling = found.outer;
    }
}

impl Polling {
    /// Notes where the task is.
    #[inline]
    pub(super) fn note_stack(&self) {
        if STACKS.load(Ordering::Relaxed) {
            let start = Start::Below(Registers::here(), ptr::from_ref(self) as usize);
            if let Some(name) = stack::name_of(start) {
                self.task.add_stack(name, self.labels_here().number());
            }
        }
    }

    /// The task's labels at this point of its poll, and not those of a task within it.
    fn labels_here(&self) -> Labels {
        let mut labels = label::current();
        let mut polling = POLLING.get();
        while !ptr::eq(polling, self) {
            // SAFETY: as above: this poll is under way, and those within it.
            let within = unsafe { &*polling };
            labels = within.labels;
            polling = within.outer;
        }
        labels
    }
}
