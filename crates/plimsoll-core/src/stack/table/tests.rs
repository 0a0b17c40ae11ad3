//! Tests of a table's guarantees, with one thread and with several.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;

use super::*;

const NONE: Labels = Labels::NONE;

fn read(table: &Table) -> Vec<Record> {
    let mut records = Vec::new();
    table.read(Kind::Block, |record| records.push(record));
    records
}

#[test]
fn equal_keys_share_a_bucket_and_different_ones_do_not() {
    let table = Table::new();
    assert!(table.open(SMALLEST_BOUND, None));
    let a = table.bucket(Kind::Block, 16, NONE, &[1, 2, 3]);
    assert_eq!(table.bucket(Kind::Block, 16, NONE, &[1, 2, 3]), a);
    assert_ne!(table.bucket(Kind::Block, 32, NONE, &[1, 2, 3]), a);
    assert_ne!(table.bucket(Kind::Block, 16, NONE, &[1, 2]), a);
    assert_ne!(table.bucket(Kind::Block, 16, NONE, &[]), a);
    let labelled = table.bucket(Kind::Block, 16, Labels::of_number(7), &[1, 2, 3]);
    assert_ne!(labelled, a);
    table.add(a, &[(0, 2), (5, 7)]);
    table.add(a, &[(0, 1)]);
    let records = read(&table);
    assert_eq!(records.len(), 1, "only buckets with counts are records");
    assert_eq!((records[0].size, records[0].stack), (16, &[1, 2, 3][..]));
    assert_eq!(records[0].cells, [3, 0, 0, 0, 0, 7]);
    table.add(a, &[(0, 1)]);
    assert_eq!(read(&table)[0].cells[0], 4);
    assert_eq!(read(&table)[0].cells[0], 4, "reading changes nothing");
    table.add(labelled, &[(0, 9)]);
    let counts = read(&table)
        .into_iter()
        .map(|record| (record.labels.number(), record.cells[0]));
    assert_eq!(counts.collect::<HashMap<_, _>>(), [(0, 4), (7, 9)].into());
}

#[test]
fn a_full_table_keeps_totals_in_the_overflow_bucket() {
    let table = Table::new();
    assert!(table.open(SMALLEST_BOUND, None));
    let early = table.bucket(Kind::Block, 8, NONE, &[77]);
    let events = 20_000;
    for event in 0..events {
        let bucket = table.bucket(
            Kind::Block,
            8,
            NONE,
            &[event + 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        );
        table.add(bucket, &[(0, 1)]);
    }
    let records = read(&table);
    let overflow: Vec<_> = records.iter().filter(|record| record.overflow).collect();
    assert_eq!(overflow.len(), 1);
    assert_eq!(overflow[0].cells[0], table.overflowed());
    assert!(table.overflowed() > 0 && table.overflowed() < events as u64);
    assert_eq!(
        records.iter().map(|record| record.cells[0]).sum::<u64>(),
        events as u64
    );
    assert!(table.bytes() <= SMALLEST_BOUND);
    let other = |labels| table.bucket_if_room(Kind::Block, 8, labels, &[77]);
    assert_eq!(other(NONE), Some(early));
    // Stacks that were stored before keep their buckets.
    assert_eq!(table.bucket(Kind::Block, 8, NONE, &[77]), early);
}

#[test]
fn a_closed_table_loses_events_and_counts_them() {
    let table = Table::new();
    let bucket = table.bucket(Kind::Block, 8, NONE, &[1]);
    table.add(bucket, &[(0, 1)]);
    assert_eq!(table.overflowed(), 1);
    assert!(read(&table).is_empty());
}

/// Threads add the same stacks at once and count pairs of events, while a reader reads.
#[test]
fn racing_threads_share_buckets_and_every_reading_is_whole() {
    let table = Table::new();
    assert!(table.open(SMALLEST_BOUND, None));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    let mut events = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let stack = [1 + (events as usize * 7 + thread) % 500, 9];
                        let bucket = table.bucket(Kind::Block, 8, NONE, &stack);
                        table.add(bucket, &[(0, 1), (1, 1)]);
                        table.add(bucket, &[(2, 1), (3, 1)]);
                        events += 1;
                    }
                    events
                })
            })
            .collect();
        let mut before = HashMap::new();
        let mut readings = 0;
        while readings < 300 || before.len() < 500 {
            readings += 1;
            for record in read(&table) {
                let [a, b, c, d, ..] = record.cells;
                assert_eq!((a, c), (b, d), "half an event");
                assert!(c <= a, "the second event without the first");
                let last = before.insert(record.stack.to_vec(), a).unwrap_or(0);
                assert!(last <= a, "a count went back");
            }
        }
        stop.store(true, Ordering::Relaxed);
        let events: u64 = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum();
        let records = read(&table);
        assert_eq!(records.len(), 500, "one bucket for each stack");
        assert_eq!(
            records.iter().map(|record| record.cells[0]).sum::<u64>(),
            events
        );
    });
}
