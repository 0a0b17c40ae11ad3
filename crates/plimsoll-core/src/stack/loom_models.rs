//! Models of one bucket of the heap profile with allocations, frees, a collector and a reader. Loom
//! checks every interleaving and every allowed reordering of these small programs.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use plimsoll_sys::primitives::{AtomicU64, Mutex, Ordering};

use super::epochs::Cuts;
use super::heap_cycle::{CycleNumber, SLOTS, Stream};

/// Indices of the counts.
const MALLOCS: usize = 0;
const FREES: usize = 1;

struct Bucket {
    cuts: Cuts,
    slots: [[AtomicU64; 2]; SLOTS],
    /// The folded counts; the lock serializes readers.
    totals: Mutex<[u64; 2]>,
    /// Accessed when a slot is written and when it is folded: loom reports concurrent accesses.
    touched: [UnsafeCell<()>; SLOTS],
}

impl Bucket {
    fn new() -> Arc<Self> {
        let counts = || [AtomicU64::new(0), AtomicU64::new(0)];
        Arc::new(Self {
            cuts: Cuts::new(),
            slots: [counts(), counts(), counts()],
            totals: Mutex::new([0; 2]),
            touched: [
                UnsafeCell::new(()),
                UnsafeCell::new(()),
                UnsafeCell::new(()),
            ],
        })
    }

    fn count(&self, stream: Stream, what: usize) -> CycleNumber {
        self.cuts.count_heap(stream, |slot| {
            // Writers share the slot with one another, but not with the folding thread.
            self.touched[slot].with(|_| {
                self.slots[slot][what].fetch_add(1, Ordering::Relaxed);
            });
        })
    }

    fn malloc(&self) -> CycleNumber {
        self.count(Stream::Program, MALLOCS)
    }

    fn free(&self) {
        self.count(Stream::Program, FREES);
    }

    fn sweep(&self, allocated: CycleNumber) {
        self.count(Stream::Swept { allocated }, FREES);
    }

    fn fold(&self, totals: &mut [u64; 2], slots: &[usize]) {
        for &slot in slots {
            self.touched[slot].with_mut(|_| {
                for (total, count) in totals.iter_mut().zip(&self.slots[slot]) {
                    *total += count.load(Ordering::Relaxed);
                    count.store(0, Ordering::Relaxed);
                }
            });
        }
    }

    fn read(&self) -> [u64; 2] {
        let mut totals = self.totals.lock().unwrap();
        let mut shown = *totals;
        self.cuts
            .publish_heap(|complete| self.fold(&mut shown, complete.heap));
        *totals = shown;
        assert!(shown[FREES] <= shown[MALLOCS], "{shown:?}");
        shown
    }

    /// Folds if no reader is running, as the table does.
    fn mark_termination(&self, id: u64) -> bool {
        if let Ok(mut totals) = self.totals.try_lock() {
            let mut shown = *totals;
            self.cuts
                .try_to_fold_published(|slots| self.fold(&mut shown, slots));
            *totals = shown;
        }
        self.cuts.heap.terminate(id)
    }

    fn end(&self, id: u64, forced: bool) {
        self.cuts.heap.end(id, forced);
    }

    /// Returns all counts, after two undisturbed forced cycles.
    fn all(&self) -> [u64; 2] {
        for id in [10, 11] {
            assert!(self.mark_termination(id));
            self.end(id, true);
        }
        self.read()
    }
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// At any moment, a reader sees no free without its allocation, and reads no slot that is being
/// written to. In the end, everything is counted.
#[test]
fn a_reader_beside_a_collector_shows_no_free_without_its_allocation() {
    bounded(|| {
        let bucket = Bucket::new();
        let collector = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                let dead = bucket.malloc();
                bucket.mark_termination(1);
                // Allocated by a finalizer.
                let young = bucket.malloc();
                bucket.sweep(young);
                bucket.sweep(dead);
                bucket.end(1, true);
            })
        };
        bucket.read();
        bucket.read();
        collector.join().unwrap();
        assert_eq!(bucket.all(), [2, 2]);
    });
}

/// A program runs beside a collector and frees its own memory.
#[test]
fn a_program_beside_a_collector_and_a_reader_loses_nothing() {
    bounded(|| {
        let bucket = Bucket::new();
        let program = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                bucket.malloc();
                bucket.free();
            })
        };
        let collector = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                bucket.mark_termination(1);
                bucket.end(1, false);
            })
        };
        bucket.read();
        program.join().unwrap();
        collector.join().unwrap();
        assert_eq!(bucket.all(), [1, 1]);
    });
}

/// One of two collectors leads, and the frees of the other are not lost.
#[test]
fn one_of_two_collectors_leads() {
    bounded(|| {
        let bucket = Bucket::new();
        let collect = |id| {
            let bucket = bucket.clone();
            move || {
                let dead = bucket.malloc();
                bucket.mark_termination(id);
                bucket.sweep(dead);
                bucket.end(id, false);
            }
        };
        let other = thread::spawn(collect(1));
        collect(2)();
        other.join().unwrap();
        assert_eq!(bucket.all(), [2, 2]);
    });
}

/// The last collector is dropped during a reading: profiles show the current state again.
#[test]
fn a_collector_may_go_during_a_reading() {
    bounded(|| {
        let bucket = Bucket::new();
        let collector = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                let dead = bucket.malloc();
                bucket.mark_termination(1);
                bucket.cuts.heap.detach();
                bucket.sweep(dead);
                bucket.end(1, true);
            })
        };
        bucket.read();
        collector.join().unwrap();
        assert_eq!(bucket.read(), [1, 1]);
    });
}
