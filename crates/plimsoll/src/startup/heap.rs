//! The counts of the heap across forks: those that a file keeps for a post-mortem, too.

use plimsoll_sys::os::fork::{Keeper, SignalGuard, join};

use crate::alloc::counts::{HEAP, HeapDelta};
use crate::alloc::thread;
use crate::fork::Order;
use crate::ledger::Reader;
use crate::postmortem;

/// The readers' lock, with what the child of a fork needs.
struct Held(SignalGuard<'static, Reader<HeapDelta>>);

static FORK: Keeper<Held> = Keeper::new(Order::Heap.rank(), Held::begin, Held::after_fork_in_child);

/// Keeps readers out of forks, from the next one on.
pub(super) fn join_forks() {
    join(&FORK);
}

impl Held {
    fn begin() -> Self {
        let mut readers = HEAP.lock_readers();
        postmortem::before_fork(&mut readers);
        Self(readers)
    }

    fn after_fork_in_child(&mut self) {
        // First: the child leaves its parent's file before anything counts.
        postmortem::after_fork_in_child(&mut self.0);
        HEAP.after_fork_in_child(thread::writer());
        thread::draw_anew();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        postmortem::after_fork_in_parent();
    }
}
