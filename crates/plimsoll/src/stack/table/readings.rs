//! Readings of a table: what was counted is folded into the totals, and shown.

use super::{BucketEntry, CELLS, Head, Kind, Table};
use crate::label::Labels;
use crate::primitives::{MutexGuard, Ordering, compiler_fence};
use crate::stack::cuts::Complete;

/// One bucket in a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// What else is part of the key: the size of an allocation, the kind of a wait. 0 in an
    /// overflow bucket.
    pub(crate) size: u64,
    pub(crate) labels: Labels,
    /// Return addresses, leaf first. They stay where they are for good.
    pub(crate) stack: &'static [usize],
    pub(crate) cells: [u64; CELLS],
    /// Whether this is where events go that find no room.
    pub(crate) overflow: bool,
    /// What was in use when most was: objects, in the units of weights, and bytes.
    pub(crate) at_peak: [u64; 2],
}

impl Head {
    /// Moves the counts of a slot that nobody writes to any more to the totals. For the reader.
    fn fold(&self, name: u32, entry: &BucketEntry, slot: usize) {
        let frozen = &entry.slots[slot];
        // Most have nothing new.
        if frozen
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
        {
            return;
        }
        for ((noted, total), count) in self.folded_totals.iter().zip(&entry.totals).zip(frozen) {
            let sum = total
                .load(Ordering::Relaxed)
                .wrapping_add(count.load(Ordering::Relaxed));
            noted.store(sum, Ordering::Relaxed);
        }
        self.folded_slot.store(slot as u64, Ordering::Relaxed);
        // From here on, whoever finds the process gone takes what is noted.
        self.folded.store(name, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        for ((noted, total), count) in self.folded_totals.iter().zip(&entry.totals).zip(frozen) {
            total.store(noted.load(Ordering::Relaxed), Ordering::Relaxed);
            count.store(0, Ordering::Relaxed);
        }
        self.folded.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

impl Table {
    /// Reads all buckets of a kind at one instant: now, or for [`Kind::Heap`] the one that its
    /// cycle says. Other readers wait their turn; nobody else does.
    pub(crate) fn read(&self, kind: Kind, mut visit: impl FnMut(Record)) {
        let alone = self.lock_readers();
        let Some(head) = self.head() else {
            return;
        };
        if kind == Kind::Heap {
            self.cuts
                .publish_heap(|complete| self.fold(&alone, head, complete));
        } else {
            self.cuts.cut(|complete| self.fold(&alone, head, complete));
        }
        self.for_each(head, |_, entry, overflow| {
            if entry.kind == kind as u8 {
                if let Some(record) = self.record(head, entry, overflow) {
                    visit(record);
                }
            }
        });
    }

    /// A mark termination in the cycle `id` of a collector, not 0: the profile of the heap goes on
    /// by one cycle, or returns false if it cannot now. Waits for nobody, who may be stopped.
    pub(crate) fn mark_termination(&self, id: u64) -> bool {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .try_to_fold_published(|slots| self.fold_heap(&alone, head, slots));
        }
        self.cuts.heap.terminate(id)
    }

    /// The end of the cycle `id` of a collector. Returns whether there is something to be folded.
    pub(crate) fn end_of_cycle(&self, id: u64, forced: bool) -> bool {
        self.cuts.heap.end(id, forced)
    }

    /// Whether frees in the sweep of that cycle are shown one cycle before other frees.
    pub(crate) fn is_led_by(&self, id: u64) -> bool {
        self.cuts.heap.is_led_by(id)
    }

    /// The last collector has gone.
    pub(crate) fn without_collectors(&self) {
        self.cuts.heap.detach();
    }

    /// Whether the profile of the heap is that of a mark termination, not that of now.
    pub(crate) fn is_of_mark_termination(&self) -> bool {
        self.cuts.heap.state().is_deferred()
    }

    /// Folds what is ready, unless a reader is at it. Takes some nanoseconds for each bucket.
    pub(crate) fn fold_if_pending(&self) {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .fold_published(|complete| self.fold(&alone, head, complete));
        }
    }

    /// Keeps readers out, if something is ready to be folded and none of them is at it.
    fn lock_to_fold(&self) -> Option<(MutexGuard<'_, ()>, &'static Head)> {
        let head = self.head()?;
        if !self.cuts.heap.state().is_pending() {
            return None;
        }
        match self.reader.try_lock() {
            Ok(alone) => Some((alone, head)),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some((poisoned.into_inner(), head)),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Folds those slots of all buckets.
    fn fold(&self, _alone: &MutexGuard<'_, ()>, head: &'static Head, complete: Complete) {
        self.for_each(head, |name, entry, _| {
            if entry.kind == Kind::Heap as u8 {
                for &slot in complete.heap {
                    head.fold(name, entry, slot);
                }
            } else {
                head.fold(name, entry, complete.others);
            }
        });
    }

    /// Folds those slots of the buckets of the heap profile.
    fn fold_heap(&self, _alone: &MutexGuard<'_, ()>, head: &'static Head, slots: &[usize]) {
        self.for_each(head, |name, entry, _| {
            if entry.kind == Kind::Heap as u8 {
                for &slot in slots {
                    head.fold(name, entry, slot);
                }
            }
        });
    }

    /// All buckets there are, the overflow buckets first.
    fn for_each(&self, head: &Head, mut visit: impl FnMut(u32, &'static BucketEntry, bool)) {
        for overflow in &head.overflow {
            let name = overflow.load(Ordering::Relaxed);
            // SAFETY: `open` made these.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, true);
        }
        let mut name = head.newest.load(Ordering::Acquire);
        while name != 0 {
            // SAFETY: names of buckets, which were complete when they got here.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, false);
            name = entry.before;
        }
    }

    /// What is folded of a bucket, if it ever counted anything.
    fn record(&self, head: &Head, entry: &'static BucketEntry, overflow: bool) -> Option<Record> {
        let cells = std::array::from_fn(|cell| entry.totals[cell].load(Ordering::Relaxed));
        let stack = if entry.stack == 0 {
            &[][..]
        } else {
            self.frames(entry.stack)
        };
        (cells != [0; CELLS]).then_some(Record {
            size: entry.size,
            labels: entry.labels,
            stack,
            cells,
            overflow,
            at_peak: entry.in_use.at_peak(&head.peak),
        })
    }

    /// Keeps readers out until the guard is dropped.
    pub(crate) fn lock_readers(&self) -> MutexGuard<'_, ()> {
        self.reader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
