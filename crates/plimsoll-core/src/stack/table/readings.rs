//! Readings of a table, which fold new counts into the totals and show these.

use plimsoll_sys::os::fork::SignalGuard;
use plimsoll_sys::primitives::{Ordering, compiler_fence};

use super::{BucketEntry, CELLS, Head, Kind, Table};
use crate::label::Labels;
use crate::stack::epochs::Complete;

/// One bucket in a reading.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The name of the bucket in the table. It is never given to another.
    pub name: u32,
    /// The rest of the key: the size of an allocation, the kind of a wait. 0 in an overflow bucket.
    pub size: u64,
    /// The labels of the events.
    pub labels: Labels,
    /// Return addresses, leaf first. They are never freed.
    pub stack: &'static [usize],
    /// The sums of the events; their kind gives the meaning of each.
    pub cells: [u64; CELLS],
    /// Whether this is the bucket for events that found the table full.
    pub overflow: bool,
    /// Memory in use at the peak: objects, in the units of weights, and bytes.
    pub at_peak: [u64; 2],
}

/// The counts of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    cells: [u64; CELLS],
    /// Memory in use: objects, in the units of weights, and bytes.
    in_use: [u64; 2],
}

impl Counts {
    /// Removes these counts from a record. Returns whether any are left.
    fn remove_from(&self, record: &mut Record) -> bool {
        for (cell, before) in record.cells.iter_mut().zip(self.cells) {
            *cell = cell.wrapping_sub(before);
        }
        for (value, before) in record.at_peak.iter_mut().zip(self.in_use) {
            *value = value.wrapping_sub(before);
        }
        record.cells != [0; CELLS] || record.at_peak != [0; 2]
    }
}

impl Head {
    /// Moves the counts of a slot to which no thread writes any more to the totals. For the reader.
    fn fold(&self, name: u32, entry: &BucketEntry, slot: usize) {
        let frozen = &entry.slots[slot];
        // Most buckets have no new counts.
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
        // From here on, a reader of an ended process uses the noted values.
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
    /// Reads all buckets of a kind at one instant: now, or for [`Kind::Heap`] at the one of its
    /// cycle. Only other readers wait.
    pub fn read(&self, kind: Kind, mut visit: impl FnMut(Record)) {
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
        let mut omitted = self.omitted();
        self.for_each(head, |name, entry, overflow| {
            let before = omitted.counts(name);
            if entry.kind != kind as u8 {
                return;
            }
            let record = self.record(head, name, entry, overflow);
            let record = record.and_then(|mut record| {
                let is_left = before.is_none_or(|before| before.remove_from(&mut record));
                is_left.then_some(record)
            });
            if let Some(record) = record {
                visit(record);
            }
        });
    }

    /// Returns the name of the newest bucket, which is above those of earlier ones; 0 without one.
    pub fn newest(&self) -> u32 {
        let newest = |head: &Head| head.newest.load(Ordering::Relaxed);
        self.head().map_or(0, newest)
    }

    /// Adds `distance` to the addresses for which `is_in` holds, in the stacks of buckets up to `newest`. Later events
    /// with such a stack have other buckets. If the table is full, the buckets lose their stacks.
    pub fn move_addresses(&self, is_in: impl Fn(usize) -> bool, distance: usize, newest: u32) {
        let _alone = self.lock_readers();
        let Some(head) = self.head() else {
            return;
        };
        let heads = self.heads.load(Ordering::Acquire);
        self.for_each(head, |name, entry, _| {
            let stack = entry.stack.load(Ordering::Acquire);
            if stack == 0 || name > newest {
                return;
            }
            let frames = self.frames(stack);
            if frames.iter().any(|&frame| is_in(frame)) {
                let moved = |&frame: &usize| match is_in(frame) {
                    true => frame.wrapping_add(distance),
                    false => frame,
                };
                let moved: Vec<usize> = frames.iter().map(moved).collect();
                let moved = self.intern(heads, &moved).unwrap_or(0);
                entry.stack.store(moved, Ordering::Release);
            }
        });
    }

    /// Reads the buckets of all kinds: those of [`Kind::Heap`] at one instant, and all others at one instant.
    pub(super) fn read_all(&self, mut visit: impl FnMut(u32, Counts)) {
        let alone = self.lock_readers();
        let Some(head) = self.head() else {
            return;
        };
        (self.cuts).publish_heap(|complete| self.fold(&alone, head, complete));
        self.cuts.cut(|complete| self.fold(&alone, head, complete));
        self.for_each(head, |name, entry, overflow| {
            if let Some(record) = self.record(head, name, entry, overflow) {
                let in_use = entry.in_use.now();
                let cells = record.cells;
                visit(name, Counts { cells, in_use });
            }
        });
    }

    /// Handles a mark termination in the cycle `id` of a collector, which is not 0. Advances the
    /// heap profile by one cycle, or returns false if that is impossible now. Waits for no thread,
    /// because any may be stopped.
    pub fn mark_termination(&self, id: u64) -> bool {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .try_to_fold_published(|slots| self.fold_heap(&alone, head, slots));
        }
        self.cuts.heap.terminate(id)
    }

    /// Handles the end of the cycle `id` of a collector. Returns whether there are slots to be
    /// folded.
    pub fn end_of_cycle(&self, id: u64, forced: bool) -> bool {
        self.cuts.heap.end(id, forced)
    }

    /// Reports whether frees in the sweep of that cycle are shown one cycle before other frees.
    pub fn is_led_by(&self, id: u64) -> bool {
        self.cuts.heap.is_led_by(id)
    }

    /// Handles the end of the last collector.
    pub fn without_collectors(&self) {
        self.cuts.heap.detach();
    }

    /// Reports whether the heap profile shows a mark termination instead of the current state.
    pub fn is_of_mark_termination(&self) -> bool {
        self.cuts.heap.state().is_deferred()
    }

    /// Folds complete slots, unless a reader is active. Takes some nanoseconds for each bucket.
    pub fn fold_if_pending(&self) {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .fold_published(|complete| self.fold(&alone, head, complete));
        }
    }

    /// Locks out readers, if slots are ready to be folded and no reader is active.
    fn lock_to_fold(&self) -> Option<(SignalGuard<'_, ()>, &'static Head)> {
        let head = self.head()?;
        if !self.cuts.heap.state().is_pending() {
            return None;
        }
        Some((self.reader.try_lock()?, head))
    }

    /// Folds the complete slots of all buckets.
    fn fold(&self, _alone: &SignalGuard<'_, ()>, head: &'static Head, complete: Complete) {
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

    /// Folds these slots of the buckets of the heap profile.
    fn fold_heap(&self, _alone: &SignalGuard<'_, ()>, head: &'static Head, slots: &[usize]) {
        self.for_each(head, |name, entry, _| {
            if entry.kind == Kind::Heap as u8 {
                for &slot in slots {
                    head.fold(name, entry, slot);
                }
            }
        });
    }

    /// Visits all buckets, the overflow buckets first.
    fn for_each(&self, head: &Head, mut visit: impl FnMut(u32, &'static BucketEntry, bool)) {
        for overflow in &head.overflow {
            let name = overflow.load(Ordering::Relaxed);
            // SAFETY: `open` made the overflow buckets.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, true);
        }
        let mut name = head.newest.load(Ordering::Acquire);
        while name != 0 {
            // SAFETY: the names refer to buckets, which were complete when they were linked here.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, false);
            name = entry.before;
        }
    }

    /// Returns the folded counts of a bucket, unless all are 0.
    fn record(
        &self,
        head: &Head,
        name: u32,
        entry: &'static BucketEntry,
        overflow: bool,
    ) -> Option<Record> {
        let cells = std::array::from_fn(|cell| entry.totals[cell].load(Ordering::Relaxed));
        let stack = match entry.stack.load(Ordering::Acquire) {
            0 => &[][..],
            stack => self.frames(stack),
        };
        (cells != [0; CELLS]).then_some(Record {
            name,
            size: entry.size,
            labels: entry.labels,
            stack,
            cells,
            overflow,
            at_peak: entry.in_use.at_peak(&head.peak),
        })
    }

    /// Locks out readers until the guard is dropped.
    pub fn lock_readers(&self) -> SignalGuard<'_, ()> {
        self.reader.lock()
    }
}
