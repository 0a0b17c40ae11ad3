//! The counts of the heap across forks: those that a file keeps for a post-mortem, too.

use plimsoll_sys::os::fork::{Keeper, SignalGuard, join};

use crate::postmortem;
use plimsoll_core::alloc::counts::{HEAP, HeapDelta};
use plimsoll_core::alloc::thread;
use plimsoll_core::fork::Order;
use plimsoll_ledger::ledger::Reader;

/// The readers' lock during a fork.
struct ForkedReaders(SignalGuard<'static, Reader<HeapDelta>>);

static FORK: Keeper<ForkedReaders> = Keeper::new(
    Order::Heap.rank(),
    ForkedReaders::begin,
    ForkedReaders::after_fork_in_child,
);

/// Keeps readers out of forks, from the next one on.
pub(super) fn join_forks() {
    join(&FORK);
}

impl ForkedReaders {
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

impl Drop for ForkedReaders {
    fn drop(&mut self) {
        postmortem::after_fork_in_parent();
    }
}
