//! A snapshot of all tasks at one instant, without blocking any thread.
//!
//! A cut begins with one step: the *epoch* is incremented. From then on, a thread that is about to
//! change a task without a mark of that epoch first records it, unchanged, and marks it. The reader
//! does the same with all unchanged tasks. A compare-and-swap of the mark decides which of the two
//! records a task. Tasks that are created later carry the mark from the beginning.
//!
//! So the cut contains each task as it was when the epoch was incremented; more precisely, no
//! thread could have observed a difference. A thread that read the epoch just before may change a
//! task just after, and the reader's speed decides whether the cut contains that change. But all
//! consequences of the change read the epoch later, and are not in the cut: a cut contains no
//! effect without its cause.
//!
//! A thread that changes a task loads the epoch, stores, and loads the epoch again for its next
//! change. The reader makes these operations visible in that order by a fence in all threads
//! ([`membarrier`]), so no other thread needs one.

use plimsoll_sys::os::fork::SignalMutex;
#[cfg(not(loom))]
use plimsoll_sys::os::fork::{Keeper, SignalGuard};

use plimsoll_sys::os::{membarrier, thread_place};
use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Backoff, Ordering, fence, light_barrier};

use super::records::Records;
use super::slab::SLAB;
use super::slot::{Seen, Slot};
#[cfg(not(loom))]
use plimsoll_core::fork::Order;

pub(super) struct Cuts {
    /// The number of cuts that have begun.
    epoch: AtomicU32,
    /// The epoch in which threads other than the reader may add records; 0 if they may not.
    open: AtomicU32,
    /// The records of those threads.
    records: Records,
    /// The number of threads that are adding records. Threads count themselves in different places.
    recording: [Stripe; PLACES],
    reader: SignalMutex<()>,
}

#[repr(align(64))]
struct Stripe(AtomicUsize);

const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

#[cfg(not(loom))]
pub(super) static CUTS: Cuts = Cuts {
    epoch: AtomicU32::new(0),
    open: AtomicU32::new(0),
    records: Records::new(),
    recording: [const { Stripe(AtomicUsize::new(0)) }; PLACES],
    reader: SignalMutex::new(()),
};

/// Keeps readers, and the thread that opens the slab, out of forks.
#[cfg(not(loom))]
pub(super) static FORK: Keeper<[SignalGuard<'static, ()>; 2]> = Keeper::new(
    Order::Tasks.rank(),
    || [CUTS.reader.lock(), SLAB.opening.lock()],
    |_| CUTS.after_fork_in_child(),
);

#[cfg(loom)]
loom::lazy_static! {
    pub(super) static ref CUTS: Cuts = Cuts {
        epoch: AtomicU32::new(0),
        open: AtomicU32::new(0),
        records: Records::new(),
        recording: [Stripe(AtomicUsize::new(0))],
        reader: SignalMutex::new(()),
    };
}

/// The number of records for tasks that are created while the cut begins, above those that exist.
const SLACK: usize = 1 << 16;

/// The instant of a cut's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coherence {
    /// They are of one instant.
    One,
    /// They may be of several: the kernel refuses the fence in all threads, as under a system call filter.
    Several,
    /// The cut was not made: out of memory.
    NoMemory,
}

impl Cuts {
    /// Returns the epoch, ordered after all earlier stores of the caller.
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        light_barrier();
        self.epoch.load(Ordering::Relaxed)
    }

    /// See [`Slot::about_to_change`].
    #[inline]
    pub(super) fn about_to_change(&self, slot: &Slot) {
        if slot.seen.load(Ordering::Relaxed) as u32 != self.epoch() {
            self.record(slot);
        }
        light_barrier();
    }

    #[cold]
    #[inline(never)]
    fn record(&self, slot: &Slot) {
        let recording = &self.recording[thread_place(PLACES)].0;
        recording.fetch_add(1, Ordering::SeqCst);
        let seen = slot.seen.load(Ordering::Acquire);
        let epoch = self.epoch.load(Ordering::SeqCst);
        if seen as u32 != epoch {
            let task = slot.read();
            // Checked before the mark is set: the reader takes a marked task for recorded, and
            // waits for the threads that found the cut open. When it is closed, the reader has seen
            // all tasks.
            let open = self.open.load(Ordering::SeqCst) == epoch;
            if mark(slot, seen, epoch) && open {
                if let Some(task) = task {
                    self.records.put(task);
                }
            }
        }
        recording.fetch_sub(1, Ordering::Release);
    }

    /// Calls `visit` with each task that exists at one instant, in no order. Excludes other
    /// readers.
    pub(super) fn read(&self, mut visit: impl FnMut(&Seen)) -> Coherence {
        let _alone = self.reader.lock();
        if !self.records.open(SLAB.used() as usize + SLACK) {
            return Coherence::NoMemory;
        }
        let epoch = match self.epoch.load(Ordering::Relaxed).wrapping_add(1) {
            // 0 means that no reader is running.
            0 => 1,
            epoch => epoch,
        };
        self.open.store(epoch, Ordering::SeqCst);
        self.epoch.store(epoch, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let is_fenced =
            membarrier::register() != membarrier::Support::None && membarrier::fence_all_threads();

        for number in 0..SLAB.used() {
            if !SLAB.is_there(number) {
                continue;
            }
            let slot = SLAB.slot(number);
            let seen = slot.seen.load(Ordering::Acquire);
            if seen as u32 != epoch {
                if let Some(task) = slot.read() {
                    if mark(slot, seen, epoch) {
                        visit(&task);
                    }
                }
            }
        }

        self.open.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut backoff = Backoff::new();
        for place in &self.recording {
            while place.0.load(Ordering::Acquire) != 0 {
                backoff.wait();
            }
        }
        self.records.close(visit);
        match is_fenced {
            true => Coherence::One,
            false => Coherence::Several,
        }
    }

    /// Resets the counts of recording threads in the child of a fork, where these threads do not
    /// exist.
    #[cfg(not(loom))]
    fn after_fork_in_child(&self) {
        for place in &self.recording {
            place.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Marks a task with the epoch. Returns false if another thread did so, or if the slot has another
/// task by now.
fn mark(slot: &Slot, seen: u64, epoch: u32) -> bool {
    let marked = seen & !u64::from(u32::MAX) | u64::from(epoch);
    slot.seen
        .compare_exchange(seen, marked, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}
