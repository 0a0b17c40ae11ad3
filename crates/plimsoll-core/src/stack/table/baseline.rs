//! The counts of all buckets at a time when no thread counts, which later readings can omit.

use plimsoll_sys::primitives::Ordering;

use super::Table;
use super::readings::Counts;

/// The counts of all buckets, such as those that the child of a fork inherits.
#[derive(Debug, Default)]
pub struct Baseline {
    /// The buckets that had counts, by name, in the order of a reading.
    counts: Vec<(u32, Counts)>,
    /// The table's number of events before the reading.
    events: u64,
}

impl Table {
    /// Returns the counts of all buckets. If other threads count meanwhile, those of [`super::Kind::Heap`] are
    /// of another instant than the rest, and the baseline is not [current](Table::is_current).
    pub fn baseline(&self) -> Baseline {
        let events = self.events.load(Ordering::SeqCst);
        let mut counts = Vec::new();
        self.read_all(|name, of_bucket| counts.push((name, of_bucket)));
        Baseline { counts, events }
    }

    /// Returns whether no event was counted since the baseline was read. Cycles of collectors do not count: the
    /// preloaded library has no collectors.
    pub fn is_current(&self, baseline: &Baseline) -> bool {
        self.events.load(Ordering::SeqCst) == baseline.events
    }

    /// Calls `read`, in which readings show the changes since `baseline` only, and memory at the peak in
    /// comparison with the memory in use at that time. Such values can be negative: they are differences
    /// modulo 2^64. Other threads that read meanwhile see the same.
    pub fn since<R>(&self, baseline: &'static Baseline, read: impl FnOnce() -> R) -> R {
        let omitted = std::ptr::from_ref(baseline).cast_mut();
        self.baseline.store(omitted, Ordering::Release);
        let result = read();
        self.baseline.store(std::ptr::null_mut(), Ordering::Release);
        result
    }

    /// Reports whether readings show changes since a baseline only.
    pub fn shows_changes(&self) -> bool {
        !self.baseline.load(Ordering::Relaxed).is_null()
    }

    /// Returns the counts that a reading omits.
    pub(super) fn omitted(&self) -> Omitted {
        // SAFETY: the pointer is null or comes from a `&'static Baseline`.
        let baseline = unsafe { self.baseline.load(Ordering::Acquire).as_ref() };
        Omitted(baseline.map_or(&[], |baseline| &baseline.counts))
    }
}

/// The rest of the counts that a reading omits.
pub(super) struct Omitted(&'static [(u32, Counts)]);

impl Omitted {
    /// Returns the counts of a bucket, if it has any. New buckets precede all others in a reading, whose
    /// order stays the same.
    pub(super) fn counts(&mut self, bucket: u32) -> Option<&'static Counts> {
        let ((name, counts), rest) = self.0.split_first()?;
        (*name == bucket).then(|| {
            self.0 = rest;
            counts
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bucket, Change, Kind, SMALLEST_BOUND};
    use super::*;
    use crate::label::Labels;
    use crate::stack::Stream;

    /// Returns the stack, the first cells and the memory at the peak of each record, by stack.
    fn read(table: &Table, kind: Kind) -> Vec<(usize, [u64; 2], [u64; 2])> {
        let mut records = Vec::new();
        table.read(kind, |record| {
            let first = record.stack.first().copied().unwrap_or(0);
            records.push((first, [record.cells[0], record.cells[1]], record.at_peak));
        });
        records.sort_unstable();
        records
    }

    #[test]
    fn a_reading_since_a_baseline_shows_changes_only() {
        let table = Table::new();
        assert!(table.open(SMALLEST_BOUND, None));
        let wait = |frame: usize| table.bucket(Kind::Block, 8, Labels::NONE, &[frame]);
        let block = |frame: usize| table.bucket(Kind::Heap, 8, Labels::NONE, &[frame]);
        let grow = |frame, bytes| {
            let change = Change::More([1, bytes]);
            table.add_heap(block(frame), Stream::Program, &[(0, 1), (1, bytes)], change);
        };
        for frame in 1..=9 {
            table.add(wait(frame), &[(0, 10), (1, 100)]);
            grow(frame, 1000);
        }
        table.restart_peak();
        let baseline: &'static Baseline = Box::leak(Box::new(table.baseline()));
        let since = |kind| table.since(baseline, || read(&table, kind));
        assert_eq!((since(Kind::Block), since(Kind::Heap)), (vec![], vec![]));

        // Known stacks, the oldest and the newest among them; a new one; and a full table's.
        for frame in [1, 4, 9, 10] {
            table.add(wait(frame), &[(0, 1), (1, 2)]);
        }
        grow(5, 70);
        grow(11, 80);
        let overflow =
            Bucket(table.head().unwrap().overflow[Kind::Block as usize].load(Ordering::Relaxed));
        table.add(overflow, &[(0, 3)]);
        let (peak, changes) = ([0, 0], [1, 2]);
        assert_eq!(
            since(Kind::Block),
            [
                (0, [3, 0], peak),
                (1, changes, peak),
                (4, changes, peak),
                (9, changes, peak),
                (10, changes, peak)
            ]
        );
        assert_eq!(
            since(Kind::Heap),
            [(5, [1, 70], [1, 70]), (11, [1, 80], [1, 80])]
        );
        // Memory of before is freed: its change is negative.
        let change = Change::Fewer([1, 1000]);
        table.add_heap(block(6), Stream::Program, &[(2, 1)], change);
        assert_eq!(since(Kind::Heap)[1], (6, [0, 0], [0, 0]));
        table.restart_peak();
        assert_eq!(
            since(Kind::Heap)[1].2,
            [1_u64.wrapping_neg(), 1000_u64.wrapping_neg()]
        );

        // Memory of before, freed when the peak begins anew, is not in the later peak.
        let change = Change::Fewer([1, 1000]);
        table.add_heap(block(7), Stream::Program, &[(2, 1)], change);
        let later: &'static Baseline = Box::leak(Box::new(table.baseline()));
        assert!(table.is_current(later) && !table.is_current(baseline));
        table.restart_peak();
        assert_eq!(table.since(later, || read(&table, Kind::Heap)), []);
        grow(7, 10);
        assert!(!table.is_current(later));
        assert_eq!(
            table.since(later, || read(&table, Kind::Heap)),
            [(7, [1, 10], [1, 10])]
        );
        assert!(!table.shows_changes());
        assert_eq!(read(&table, Kind::Block).len(), 11, "the whole");
        assert_eq!(read(&table, Kind::Block)[1], (1, [11, 102], [0, 0]));
    }
}
