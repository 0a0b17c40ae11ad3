//! Tests that the reader of post-mortem files finds the counts of a table in its memory.

use plimsoll_postmortem::table::{self, Table as Read};

use super::super::super::{Change, Stream};
use super::super::{SMALLEST_BOUND, Table};
use super::*;
use crate::label::Labels;

/// The layout with the cells that `sampler::cell` names.
const COUNTED: TableLayout = TableLayout {
    malloc_samples: 0,
    malloc_weight: 1,
    malloc_bytes: 2,
    free_samples: 3,
    free_weight: 4,
    free_bytes: 5,
    ..LAYOUT
};

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

fn read(bytes: &[u8]) -> Read {
    table::read(&COUNTED, bytes)
}

fn cells(read: &Read, size: u64) -> [u64; CELLS] {
    let bucket = read.sites.iter().find(|bucket| bucket.size == size);
    let bucket = bucket.expect("it counted something");
    let (allocated, freed) = (bucket.allocated, bucket.freed);
    [
        allocated.samples,
        allocated.weight,
        allocated.bytes,
        freed.samples,
        freed.weight,
        freed.bytes,
    ]
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn the_reader_finds_every_count_folded_or_not() {
    let table = table();
    for fold in [false, true] {
        if fold {
            table.read(Kind::Heap, |_| {});
            event(&table, 32, &[(0, 1)], Change::More([0, 0]));
        }
        let read_back = read(&table.bytes_in_use());
        assert!(!read_back.damaged);
        assert_eq!(read_back.sites.len(), 2);
        assert_eq!(cells(&read_back, 16), [2, 10, 160, 1, 5, 80]);
        let one_more = u64::from(fold);
        assert_eq!(cells(&read_back, 32), [1 + one_more, 5, 80, 0, 0, 0]);
        for bucket in &read_back.sites {
            assert_eq!((&*bucket.stack, bucket.in_flight), (&FRAMES[..], 0));
        }
        let at_peak: Vec<_> = read_back
            .sites
            .iter()
            .map(|site| [site.at_peak.weight, site.at_peak.bytes])
            .collect();
        assert_eq!(at_peak, [[5, 80], [10, 160]], "the newest first");
    }
}

/// Covers a process that ends between any two stores of [`Head::fold`].
#[test]
fn a_fold_that_was_not_finished_counts_nothing_twice() {
    let table = table();
    let whole = table.bytes_in_use();
    let expected = [2, 10, 160, 1, 5, 80];
    let name = half(&whole, offset_of!(Head, newest));
    let entry = |name: u32| name as usize * UNIT;
    let before = half(&whole, entry(name) + offset_of!(BucketEntry, before));
    assert_eq!(word(&whole, entry(before)), 16, "the size of the first");
    // Without collectors, events count to the slot two behind the cycle's.
    let slot = 2;
    let put = |bytes: &mut Vec<u8>, at: usize, value: u64| {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    };
    let mut bytes = whole;
    for (cell, &sum) in expected.iter().enumerate() {
        put(&mut bytes, offset_of!(Head, folded_totals) + 8 * cell, sum);
        assert_eq!(cells(&read(&bytes), 16), expected);
    }
    put(&mut bytes, offset_of!(Head, folded_slot), slot as u64);
    assert_eq!(cells(&read(&bytes), 16), expected);
    let folded = offset_of!(Head, folded);
    bytes[folded..folded + 4].copy_from_slice(&before.to_ne_bytes());
    for (cell, &sum) in expected.iter().enumerate() {
        assert_eq!(cells(&read(&bytes), 16), expected);
        let total = offset_of!(BucketEntry, totals) + 8 * cell;
        put(&mut bytes, entry(before) + total, sum);
        assert_eq!(cells(&read(&bytes), 16), expected);
        let count = offset_of!(BucketEntry, slots) + 8 * (slot * CELLS + cell);
        put(&mut bytes, entry(before) + count, 0);
    }
    assert_eq!(cells(&read(&bytes), 16), expected);
    bytes[folded..folded + 4].fill(0);
    assert_eq!(cells(&read(&bytes), 16), expected);
    assert_eq!(cells(&read(&bytes), 32), [1, 5, 80, 0, 0, 0]);
}
