//! The table of a process that is gone, from its bytes in a file. None of them is trusted: what
//! makes no sense is left out, and said to be.

use std::mem::offset_of;
use std::sync::Arc;

use super::heap_cycle::SLOTS;
use super::peak::{InUse, Peak};
use super::table::{BucketEntry, CELLS, Head, KINDS, StackEntry, UNIT};
use super::{DEEPEST, HIDDEN_FRAMES, Kind};

/// What is left of the table.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// The buckets of the heap profile that counted something.
    pub(crate) buckets: Vec<Bucket>,
    /// Events that found no room for their stack.
    pub(crate) overflowed: u64,
    /// Whether buckets or stacks are missing, because the bytes make no sense or there are too
    /// few.
    pub(crate) damaged: bool,
}

/// A bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// 0 if sizes are mixed.
    pub(crate) size: u64,
    pub(crate) labels: u32,
    /// Return addresses, leaf first.
    pub(crate) stack: Arc<[usize]>,
    pub(crate) cells: [u64; CELLS],
    /// What was in use when most was: objects, in the units of weights, and bytes.
    pub(crate) at_peak: [u64; 2],
    /// Events of which there may be a part.
    pub(crate) in_flight: u32,
    pub(crate) overflow: bool,
}

/// The most frames that all buckets have together, half a GiB of them. Buckets share stacks, so
/// without a limit, they could have a hundred times as many bytes of frames as the file has.
const MOST_FRAMES: usize = 1 << 26;

/// How many bytes at the beginning say how long the table is.
pub(crate) const BEGINNING: usize = size_of::<Head>();

/// How many bytes there are in use of the table that begins so.
pub(crate) fn length(beginning: &[u8]) -> u64 {
    word(beginning, offset_of!(Head, used)).unwrap_or(0)
}

impl Remains {
    /// Reads a table of which those are the bytes in use.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let mut remains = Self {
            damaged: (bytes.len() as u64) < length(bytes),
            ..Self::default()
        };
        let Some(overflowed) = word(bytes, offset_of!(Head, overflowed)) else {
            return remains;
        };
        remains.overflowed = overflowed;
        let mut frames_left = MOST_FRAMES;
        for kind in 0..KINDS {
            let name = half(bytes, offset_of!(Head, overflow) + 4 * kind);
            remains.add(bytes, name, true, &mut frames_left);
        }
        // There cannot be more; a chain that has more is a circle.
        let mut left = bytes.len() / size_of::<BucketEntry>();
        let mut name = half(bytes, offset_of!(Head, newest));
        while let Some(bucket) = name.filter(|&name| name != 0) {
            if left == 0 {
                remains.damaged = true;
                break;
            }
            left -= 1;
            remains.add(bytes, name, false, &mut frames_left);
            name = half(bytes, at(bucket) + offset_of!(BucketEntry, before));
        }
        remains
    }

    fn add(&mut self, bytes: &[u8], name: Option<u32>, overflow: bool, frames_left: &mut usize) {
        let entry = name.filter(|&name| name != 0).and_then(|name| {
            let entry = bytes.get(at(name)..)?.get(..size_of::<BucketEntry>())?;
            Some((name, entry))
        });
        let Some((name, entry)) = entry else {
            self.damaged = true;
            return;
        };
        if entry[offset_of!(BucketEntry, kind)] != Kind::Heap as u8 {
            return;
        }
        let cells = cells(bytes, name, entry);
        let in_flight = half(entry, offset_of!(BucketEntry, in_flight)).unwrap_or(0);
        if cells == [0; CELLS] && in_flight == 0 {
            return;
        }
        let stack = match half(entry, offset_of!(BucketEntry, stack)) {
            None | Some(0) => Some([].into()),
            Some(stack) => frames(bytes, stack, frames_left),
        };
        self.damaged |= stack.is_none();
        self.buckets.push(Bucket {
            size: word(entry, offset_of!(BucketEntry, size)).unwrap_or(0),
            labels: half(entry, offset_of!(BucketEntry, labels)).unwrap_or(0),
            stack: stack.unwrap_or_else(|| [].into()),
            cells,
            at_peak: at_peak(bytes, entry),
            in_flight,
            overflow,
        });
    }
}

/// The counts of a bucket, folded or not.
fn cells(bytes: &[u8], name: u32, entry: &[u8]) -> [u64; CELLS] {
    // Of one that was being folded, what that was to come to is noted.
    let is_folded = half(bytes, offset_of!(Head, folded)) == Some(name);
    let folded_slot = word(bytes, offset_of!(Head, folded_slot)).unwrap_or(0);
    std::array::from_fn(|cell| {
        let total = if is_folded {
            word(bytes, offset_of!(Head, folded_totals) + 8 * cell)
        } else {
            word(entry, offset_of!(BucketEntry, totals) + 8 * cell)
        };
        let slots = (0..SLOTS).filter(|&slot| !is_folded || slot as u64 != folded_slot);
        let slots = slots.map(|slot| {
            let at = offset_of!(BucketEntry, slots) + 8 * (slot * CELLS + cell);
            word(entry, at).unwrap_or(0)
        });
        slots.fold(total.unwrap_or(0), u64::wrapping_add)
    })
}

/// As [`InUse::at_peak`].
fn at_peak(bytes: &[u8], entry: &[u8]) -> [u64; 2] {
    let in_use = offset_of!(BucketEntry, in_use);
    let last = word(bytes, offset_of!(Head, peak) + offset_of!(Peak, number));
    let noted = word(entry, in_use + offset_of!(InUse, peak)) == last;
    let amount = in_use
        + if noted {
            offset_of!(InUse, then)
        } else {
            offset_of!(InUse, now)
        };
    [0, 8].map(|part| word(entry, amount + part).unwrap_or(0))
}

/// The return addresses of a stack, which are taken off those that are left.
fn frames(bytes: &[u8], name: u32, left: &mut usize) -> Option<Arc<[usize]>> {
    let entry = bytes.get(at(name)..)?;
    let length = half(entry, offset_of!(StackEntry, length))? as usize;
    if length > DEEPEST + HIDDEN_FRAMES {
        return None;
    }
    let frames = entry.get(size_of::<StackEntry>()..)?.get(..8 * length)?;
    *left = left.checked_sub(length)?;
    let frames = (0..length).filter_map(|at| word(frames, 8 * at));
    Some(frames.map(|frame| frame as usize).collect())
}

fn at(name: u32) -> usize {
    name as usize * UNIT
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let half = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*half))
}

#[cfg(test)]
mod tests {
    use super::super::table::{SMALLEST_BOUND, Table};
    use super::super::{Change, Stream};
    use super::*;
    use crate::label::Labels;

    const FRAMES: [usize; 3] = [0x1000, 0x2000, 0x3000];

    fn event(table: &Table, size: u64, amounts: &[(usize, u64)], in_use: Change) {
        let bucket = table.bucket(Kind::Heap, size, Labels::NONE, &FRAMES);
        table.add_heap(bucket, Stream::Program, amounts, in_use);
    }

    fn table() -> Table {
        let table = Table::new();
        assert!(table.open(SMALLEST_BOUND, None));
        let malloc = [(0, 1), (1, 5), (2, 80)];
        event(&table, 16, &malloc, Change::More([5, 80]));
        event(&table, 32, &malloc, Change::More([5, 80]));
        event(&table, 16, &malloc, Change::More([5, 80]));
        let free = [(3, 1), (4, 5), (5, 80)];
        event(&table, 16, &free, Change::Fewer([5, 80]));
        table
    }

    fn cells(remains: &Remains, size: u64) -> [u64; CELLS] {
        let bucket = remains.buckets.iter().find(|bucket| bucket.size == size);
        bucket.expect("it counted something").cells
    }

    #[test]
    fn what_is_left_is_what_was_counted_folded_or_not() {
        let table = table();
        for fold in [false, true] {
            if fold {
                table.read(Kind::Heap, |_| {});
                event(&table, 32, &[(0, 1)], Change::More([0, 0]));
            }
            let remains = Remains::read(&table.bytes_in_use());
            assert!(!remains.damaged);
            assert_eq!(remains.buckets.len(), 2);
            assert_eq!(cells(&remains, 16), [2, 10, 160, 1, 5, 80]);
            let one_more = u64::from(fold);
            assert_eq!(cells(&remains, 32), [1 + one_more, 5, 80, 0, 0, 0]);
            for bucket in &remains.buckets {
                assert_eq!((&*bucket.stack, bucket.in_flight), (&FRAMES[..], 0));
            }
            let at_peak: Vec<_> = remains
                .buckets
                .iter()
                .map(|bucket| bucket.at_peak)
                .collect();
            assert_eq!(at_peak, [[5, 80], [10, 160]], "the newest first");
        }
    }

    /// A process that ends between any two stores of [`Head::fold`].
    #[test]
    fn a_fold_that_was_not_finished_counts_nothing_twice() {
        let table = table();
        let whole = table.bytes_in_use();
        let expected = [2, 10, 160, 1, 5, 80];
        let name = half(&whole, offset_of!(Head, newest)).unwrap();
        let entry = |name: u32| at(name);
        let before = half(&whole, entry(name) + offset_of!(BucketEntry, before)).unwrap();
        assert_eq!(
            word(&whole, entry(before)),
            Some(16),
            "the size of the first"
        );
        // Without collectors, what is counted goes to the slot two behind the cycle's.
        let slot = 2;
        let put = |bytes: &mut Vec<u8>, at: usize, value: u64| {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        };
        let mut bytes = whole;
        for (cell, &sum) in expected.iter().enumerate() {
            put(&mut bytes, offset_of!(Head, folded_totals) + 8 * cell, sum);
            assert_eq!(cells(&Remains::read(&bytes), 16), expected);
        }
        put(&mut bytes, offset_of!(Head, folded_slot), slot as u64);
        assert_eq!(cells(&Remains::read(&bytes), 16), expected);
        let folded = offset_of!(Head, folded);
        bytes[folded..folded + 4].copy_from_slice(&before.to_ne_bytes());
        for (cell, &sum) in expected.iter().enumerate() {
            assert_eq!(cells(&Remains::read(&bytes), 16), expected);
            let total = offset_of!(BucketEntry, totals) + 8 * cell;
            put(&mut bytes, entry(before) + total, sum);
            assert_eq!(cells(&Remains::read(&bytes), 16), expected);
            let count = offset_of!(BucketEntry, slots) + 8 * (slot * CELLS + cell);
            put(&mut bytes, entry(before) + count, 0);
        }
        assert_eq!(cells(&Remains::read(&bytes), 16), expected);
        bytes[folded..folded + 4].fill(0);
        assert_eq!(cells(&Remains::read(&bytes), 16), expected);
        assert_eq!(cells(&Remains::read(&bytes), 32), [1, 5, 80, 0, 0, 0]);
    }
}
