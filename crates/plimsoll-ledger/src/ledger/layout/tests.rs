//! Checks that the reader of post-mortem files finds the ledger's counts in the memory of its
//! shards.

use plimsoll_postmortem::counters;

use super::super::tests::{Flow, TOGETHER};
use super::super::{Delta, Ledger, SHARD_BYTES, Writer};
use super::*;

fn sum(protocol: Protocol, shards: &[u8], count: usize) -> (Flow, u64) {
    let shards = counters::Shards {
        layout: LAYOUT,
        protocol: protocol as u64,
        shared: &[],
        shards,
        count,
    };
    let mut flow = Flow::ZERO;
    let in_progress = shards.add_to(flow.words_mut());
    (flow, in_progress)
}

/// Covers both generations, shards of several threads, and an operation on several words that is
/// only in the log, as the last one always is.
#[test]
fn the_shards_of_a_post_mortem_file_add_up_to_the_cut() {
    static PER_CPU: Ledger<Flow> = Ledger::new();
    static PER_THREAD: Ledger<Flow> = Ledger::new();
    for (ledger, protocol) in [
        (&PER_CPU, Protocol::PerCpu),
        (&PER_THREAD, Protocol::PerThread),
    ] {
        if ledger.open(Some(protocol), None) != Some(protocol) {
            plimsoll_testkit::skip!("{protocol:?}");
            continue;
        }
        for round in 0..4 {
            for thread in 0..3 {
                let work = || {
                    let writer = ledger.enlist();
                    ledger.record(writer, &[(thread, 5)]);
                    ledger.record(writer, &[(thread, 1), (TOGETHER, 2), (TOGETHER + 1, 2)]);
                    // The last thread keeps its shard, so a second shard exists.
                    if thread != 2 {
                        ledger.retire(writer);
                    }
                };
                std::thread::scope(|scope| scope.spawn(work).join().unwrap());
            }
            let (first, count) = ledger.place();
            let length = match protocol {
                Protocol::PerCpu => counters::Shards::length(&LAYOUT, protocol as u64, count),
                _ => ledger.shard_bytes_committed() - SHARD_BYTES,
            };
            // SAFETY: the range is accessible, and no thread writes to it.
            let shards = unsafe { std::slice::from_raw_parts(first as *const u8, length) };
            let (left, in_progress) = sum(protocol, shards, count);
            assert_eq!(in_progress, 0);
            assert_eq!(left.words(), ledger.read().delta.words(), "{protocol:?}");
            assert_eq!(left.together, [6 * (round + 1); 2]);
            assert_eq!(left.given[2], 6 * (round + 1));
        }
    }
    // A process that ends in the middle of an operation.
    let Writer::Shard(shard) = PER_THREAD.enlist() else {
        unreachable!("opened with per-thread shards")
    };
    PER_THREAD.per_thread.record(shard, &[(0, 1)], || {
        let (first, count) = PER_THREAD.place();
        let length = PER_THREAD.shard_bytes_committed() - SHARD_BYTES;
        // SAFETY: the range is accessible, and no thread writes to it.
        let shards = unsafe { std::slice::from_raw_parts(first as *const u8, length) };
        assert_eq!(sum(Protocol::PerThread, shards, count).1, 1);
        PER_THREAD.generation()
    });
}
