//! Models of the per-thread protocol: every interleaving and every allowed reordering of small
//! programs.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use loom::sync::Arc;
use loom::thread;

use plimsoll_sys::primitives::AtomicBool;

use super::per_thread::PerThread;
use super::*;

/// Two words, of which each operation changes both.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair {
    first: u64,
    second: u64,
}

// SAFETY: two u64 words.
unsafe impl Delta for Pair {
    const ZERO: Self = Self {
        first: 0,
        second: 0,
    };
}

impl<D: Delta> Ledger<D> {
    fn model() -> Self {
        Self {
            current: AtomicUsize::new(0),
            state: AtomicU32::new(Protocol::PerThread as u32),
            per_thread: PerThread::new(),
            shared: SharedShard::new(),
            reader: SignalMutex::new(Reader {
                saved: [D::ZERO; 2],
            }),
        }
    }

    pub(super) fn shards(&self) -> Option<&dyn Shards<D>> {
        Some(&self.per_thread)
    }

    pub(super) fn exactness(&self, fenced: bool) -> bool {
        fenced
    }

    fn enlist(&self) -> Writer {
        self.per_thread
            .acquire()
            .map_or(Writer::Shared, Writer::Shard)
    }
}

const BOTH: &[(usize, u64)] = &[(0, 1), (1, 1)];

fn bounded() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder
}

/// One thread counts and hands over, and another counts after that: a cut never shows the second
/// count without the first.
fn hand_over(writer_of: fn(&Ledger<Pair>) -> Writer) {
    bounded().check(move || {
        let ledger = Arc::new(Ledger::<Pair>::model());
        let handed = Arc::new(AtomicBool::new(false));
        let giver = {
            let (ledger, handed) = (ledger.clone(), handed.clone());
            thread::spawn(move || {
                let writer = writer_of(&ledger);
                ledger.record(writer, &[(0, 1)]);
                handed.store(true, Ordering::Release);
                ledger.retire(writer);
            })
        };
        let taker = {
            let (ledger, handed) = (ledger.clone(), handed.clone());
            thread::spawn(move || {
                if handed.load(Ordering::Acquire) {
                    let writer = writer_of(&ledger);
                    ledger.record(writer, &[(1, 1)]);
                }
            })
        };
        for _ in 0..2 {
            let cut = ledger.read();
            assert!(
                cut.delta.second <= cut.delta.first,
                "the taking without the giving"
            );
        }
        giver.join().unwrap();
        taker.join().unwrap();
        let end = ledger.read().delta;
        assert_eq!(
            (end.first, end.second),
            (1, u64::from(handed.load(Ordering::Relaxed)) & end.second)
        );
    });
}

#[test]
fn a_hand_over_between_two_writers_is_never_cut_the_wrong_way_round() {
    hand_over(Ledger::enlist);
}

#[test]
fn a_hand_over_in_the_shared_shard_is_never_cut_the_wrong_way_round() {
    hand_over(|_| Writer::Shared);
}

/// Both words of one operation are in a cut, or neither is; and cuts never go back.
fn whole_operations(writer_of: fn(&Ledger<Pair>) -> Writer) {
    bounded().check(move || {
        let ledger = Arc::new(Ledger::<Pair>::model());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let ledger = ledger.clone();
                thread::spawn(move || {
                    let writer = writer_of(&ledger);
                    ledger.record(writer, BOTH);
                    ledger.retire(writer);
                })
            })
            .collect();
        let mut last = 0;
        for _ in 0..2 {
            let cut = ledger.read();
            assert!(cut.exact);
            assert_eq!(cut.delta.first, cut.delta.second, "half an operation");
            assert!(cut.delta.first >= last, "a cut went back");
            last = cut.delta.first;
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(ledger.read().delta.first, 2, "an operation was lost");
    });
}

#[test]
fn operations_are_whole_in_every_cut_and_survive_the_exit_of_their_thread() {
    whole_operations(Ledger::enlist);
}

#[test]
fn operations_in_the_shared_shard_are_whole_in_every_cut() {
    whole_operations(|_| Writer::Shared);
}

/// A shard that passes from a thread that ended to a new one keeps the sums of both.
#[test]
fn a_shard_is_handed_down_with_its_sums() {
    bounded().check(|| {
        let ledger = Arc::new(Ledger::<Pair>::model());
        let first = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let writer = ledger.enlist();
                ledger.record(writer, BOTH);
                ledger.retire(writer);
            })
        };
        let writer = ledger.enlist();
        ledger.record(writer, BOTH);
        ledger.retire(writer);
        first.join().unwrap();
        let heir = ledger.enlist();
        ledger.record(heir, BOTH);
        assert_eq!(ledger.read().delta.first, 3);
        assert_ne!(heir, Writer::Shared);
    });
}

/// The models can fail: without the reader's barrier or its wait, loom finds the wrong cut.
fn broken(settle: fn(&dyn Shards<Pair>, Generation) -> bool) {
    bounded().check(move || {
        let ledger = Arc::new(Ledger::<Pair>::model());
        let writer = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let writer = ledger.enlist();
                ledger.record(writer, BOTH);
            })
        };
        for _ in 0..2 {
            let cut = ledger.cut(settle);
            assert_eq!(cut.delta.first, cut.delta.second, "half an operation");
        }
        writer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "half an operation")]
fn a_reader_that_does_not_wait_is_caught() {
    broken(|_, _| true);
}

/// The generation is stored as the flag: load, store, add. The reader misses a writer between load
/// and store.
#[test]
#[should_panic(expected = "half an operation")]
fn the_generation_as_the_flag_is_caught() {
    bounded().check(|| {
        let ledger = Arc::new(Ledger::<Pair>::model());
        let writer = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let Writer::Shard(shard) = ledger.enlist() else {
                    unreachable!()
                };
                // `record` raises its flag after this load, as a store of the generation would.
                let seen = ledger.generation();
                ledger.per_thread.record(shard, BOTH, || seen);
            })
        };
        for _ in 0..2 {
            let cut = ledger.read();
            assert_eq!(cut.delta.first, cut.delta.second, "half an operation");
        }
        writer.join().unwrap();
    });
}
