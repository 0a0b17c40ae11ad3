//! All tasks at one instant, without anybody waiting for it.
//!
//! A cut begins with one step: the *epoch* goes up. From then on, whoever is about to change a task
//! that is not marked with that epoch records it first, as it still is, and marks it; the reader
//! does the same with all that nobody changes. Which of them does it is settled by a
//! compare-and-swap of the mark. Tasks that are made later carry the mark from the beginning.
//!
//! So a task in the cut is as it was when the epoch went up; or rather, as nobody could have known
//! it not to be. Somebody who looked at the epoch just before it went up may change a task just
//! after, and it depends on the reader's haste whether that is in the cut. But whatever follows
//! from that change looks at the epoch later, and is not: a cut has no effect without its cause.
//!
//! Who changes a task loads the epoch, stores, and, for what it changes next, loads the epoch
//! again. The reader makes these be seen in that order with a fence in all threads
//! ([`membarrier`]), so nobody else needs one.

use super::records::Records;
use super::slab::SLAB;
use super::slot::{Seen, Slot};
use crate::os::{membarrier, thread_place};
use crate::primitives::{
    AtomicU32, AtomicUsize, Backoff, Mutex, MutexGuard, Ordering, fence, light_barrier,
};

pub(super) struct Cuts {
    /// How many were begun.
    epoch: AtomicU32,
    /// The epoch in which records are accepted from others than the reader; 0 if they are not.
    open: AtomicU32,
    /// Where they put them.
    records: Records,
    /// How many are in the middle of it: threads count themselves in different places.
    recording: [Place; PLACES],
    reader: Mutex<()>,
}

#[repr(align(64))]
struct Place(AtomicUsize);

const PLACES: usize = if cfg!(loom) { 1 } else { 16 };

#[cfg(not(loom))]
pub(super) static CUTS: Cuts = Cuts {
    epoch: AtomicU32::new(0),
    open: AtomicU32::new(0),
    records: Records::new(),
    recording: [const { Place(AtomicUsize::new(0)) }; PLACES],
    reader: Mutex::new(()),
};

#[cfg(loom)]
loom::lazy_static! {
    pub(super) static ref CUTS: Cuts = Cuts {
        epoch: AtomicU32::new(0),
        open: AtomicU32::new(0),
        records: Records::new(),
        recording: [Place(AtomicUsize::new(0))],
        reader: Mutex::new(()),
    };
}

/// More tasks than there are when the cut begins can come to be recorded by others: those that were
/// made at the same time.
const SLACK: usize = 1 << 16;

impl Cuts {
    /// The epoch, after all that the caller did before.
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
            // Before it is marked: the reader, who then takes it for recorded, waits for those who
            // found it open. Afterwards, it has seen all that there was.
            let open = self.open.load(Ordering::SeqCst) == epoch;
            if mark(slot, seen, epoch) && open {
                if let Some(task) = task {
                    self.records.put(task);
                }
            }
        }
        recording.fetch_sub(1, Ordering::Release);
    }

    /// Calls `visit` with each task that there is at one instant, in no order. Other readers wait
    /// their turn. False if there was no memory for it: then it was called with none.
    pub(super) fn read(&self, mut visit: impl FnMut(&Seen)) -> bool {
        let _alone = self.lock();
        if !self.records.open(SLAB.used() as usize + SLACK) {
            return false;
        }
        let epoch = match self.epoch.load(Ordering::Relaxed).wrapping_add(1) {
            // Which says that nobody is reading.
            0 => 1,
            epoch => epoch,
        };
        self.open.store(epoch, Ordering::SeqCst);
        self.epoch.store(epoch, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if membarrier::register() != membarrier::Support::None {
            membarrier::fence_all_threads();
        }

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
        true
    }

    /// Keeps readers out until the guard is dropped: for a fork.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.reader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// In the child of a fork: nobody is recording any more.
    #[cfg(not(loom))]
    pub(super) fn after_fork_in_child(&self) {
        for place in &self.recording {
            place.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Marks a task with the epoch. False if somebody else did, or if it is another task by now.
fn mark(slot: &Slot, seen: u64, epoch: u32) -> bool {
    let marked = seen & !u64::from(u32::MAX) | u64::from(epoch);
    slot.seen
        .compare_exchange(seen, marked, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}
