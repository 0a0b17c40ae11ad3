//! Models of lists, batches, the end of threads and snapshots: every interleaving and every allowed
//! reordering of small programs, with the heads, announcements and locks that the heap uses.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-models --release --target-dir target/loom heap`

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use plimsoll_sys::os::membarrier;

use super::counted_lock::{CountedLock, Epoch};
use super::list::{Head, Reading, announced, wait_for_operation};

const OPEN: usize = 1;
const CLOSED: usize = 0;
const CAPACITY: usize = 2;

/// Allocated and freed.
type Counts = [u64; 2];

/// A heap of one class with a slot for each thread.
struct Model {
    current: AtomicUsize,
    epoch: Epoch,
    central: CountedLock<Vec<u64>, 2>,
    slots: Vec<Slot>,
    /// The numbers of slots without a thread.
    free_slots: CountedLock<Vec<usize>, 0>,
}

struct Slot {
    flag: AtomicUsize,
    head: Head,
    blocks: Vec<AtomicU64>,
}

impl Model {
    /// Returns a heap with slots of the given limits, and as many blocks.
    fn new(limits: &[u64], blocks: u64) -> Arc<Self> {
        let slots = limits.iter().map(|&limit| Slot {
            flag: AtomicUsize::new(0),
            head: Head::new(limit),
            blocks: (0..CAPACITY).map(|_| AtomicU64::new(0)).collect(),
        });
        Arc::new(Self {
            current: AtomicUsize::new(OPEN),
            epoch: Epoch::new(),
            central: CountedLock::new((1..=blocks).collect()),
            slots: slots.collect(),
            free_slots: CountedLock::new(vec![0]),
        })
    }

    /// Calls `operate` if the lists are open, while the slot announces it.
    fn on_list<T>(&self, slot: usize, operate: impl FnOnce(&Slot) -> Option<T>) -> Option<T> {
        let slot = &self.slots[slot];
        announced(&slot.flag, || match self.current.load(Ordering::Acquire) {
            OPEN => operate(slot),
            _ => None,
        })
    }

    fn pop(&self, slot: usize) -> Option<u64> {
        self.on_list(slot, |slot| slot.head.pop(&slot.blocks))
    }

    fn alloc(&self, slot: usize) -> u64 {
        self.pop(slot).unwrap_or_else(|| {
            let mut central = self.central.lock(&self.epoch);
            central.add(0, 1);
            central.pop().expect("the model has enough blocks")
        })
    }

    fn free(&self, slot: usize, block: u64) {
        let pushed = self.on_list(slot, |slot| {
            slot.head.push(&slot.blocks, block).then_some(())
        });
        if pushed.is_none() {
            let mut central = self.central.lock(&self.epoch);
            central.add(1, 1);
            central.push(block);
        }
    }

    /// Moves a block from the central list to the slot.
    fn refill(&self, slot: usize) {
        let Some(block) = self.central.lock(&self.epoch).pop() else {
            return;
        };
        let filled = self.on_list(slot, |slot| {
            slot.head
                .fill(&slot.blocks, &[block], CAPACITY)
                .then_some(())
        });
        if filled.is_none() {
            self.central.lock(&self.epoch).push(block);
        }
    }

    /// Moves a block from the slot to the central list.
    fn flush(&self, slot: usize) {
        let mut batch = [0];
        let drained = self.on_list(slot, |slot| {
            slot.head.drain(&slot.blocks, &mut batch).then_some(())
        });
        if drained.is_some() {
            self.central.lock(&self.epoch).push(batch[0]);
        }
    }

    fn snapshot(&self) -> Counts {
        self.current.store(CLOSED, Ordering::SeqCst);
        membarrier::fence_all_threads();
        for slot in &self.slots {
            wait_for_operation(&slot.flag);
        }
        let epoch = self.epoch.turn();
        let readings: Vec<Reading> = self.slots.iter().map(|slot| slot.head.read()).collect();
        self.current.store(OPEN, Ordering::Release);
        // Operations on open lists between the two readings: the bounded search does not try them otherwise.
        thread::yield_now();
        let [mut allocated, mut freed] = self.central.at(epoch);
        for reading in readings {
            allocated += reading.allocated;
            freed += reading.freed;
        }
        [allocated, freed]
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A block that one thread allocates and another one frees: no snapshot has the free without the
/// allocation.
#[test]
fn no_snapshot_has_a_free_without_its_allocation() {
    check(|| {
        let model = Model::new(&[1, 1], 1);
        let handed = Arc::new(AtomicU64::new(0));
        let giver = {
            let (model, handed) = (model.clone(), handed.clone());
            thread::spawn(move || handed.store(model.alloc(0), Ordering::Release))
        };
        let receiver = {
            let (model, handed) = (model.clone(), handed.clone());
            thread::spawn(move || {
                let block = handed.load(Ordering::Acquire);
                if block != 0 {
                    model.free(1, block);
                }
            })
        };
        let [allocated, freed] = model.snapshot();
        assert!(freed <= allocated, "{freed} of {allocated}");
        giver.join().unwrap();
        receiver.join().unwrap();
        let [allocated, freed] = model.snapshot();
        let in_central = model.central.lock(&model.epoch).len() as u64;
        let in_lists: u64 = model.slots.iter().map(|slot| slot.head.read().blocks).sum();
        assert_eq!((allocated, freed), (1, in_central + in_lists));
    });
}

/// The same for a block that comes from a list and returns to the central list, and for one that goes the
/// other way.
#[test]
fn no_snapshot_separates_lists_from_the_central_list() {
    for (limits, filled) in [([1, 0], true), ([0, 1], false)] {
        check(move || {
            let model = Model::new(&limits, 2);
            if filled {
                model.refill(0);
            }
            let user = {
                let model = model.clone();
                thread::spawn(move || {
                    let block = model.alloc(0);
                    model.free(1, block);
                })
            };
            let [allocated, freed] = model.snapshot();
            assert!(freed <= allocated, "{freed} of {allocated}");
            user.join().unwrap();
            assert_eq!(model.snapshot(), [1, 1]);
        });
    }
}

/// Batches move blocks while a snapshot is taken, and change no count.
#[test]
fn batches_change_no_count() {
    check(|| {
        let model = Model::new(&[1], 2);
        let user = {
            let model = model.clone();
            thread::spawn(move || {
                model.refill(0);
                let block = model.alloc(0);
                model.free(0, block);
                model.flush(0);
            })
        };
        let [allocated, freed] = model.snapshot();
        assert!(freed <= allocated && allocated <= 1);
        user.join().unwrap();
        assert_eq!(model.snapshot(), [1, 1]);
    });
}

/// A slot passes from a thread that ends to one that begins, with its counts and its blocks.
#[test]
fn a_slot_passes_to_the_next_thread() {
    check(|| {
        let model = Model::new(&[1], 1);
        let use_slot = |model: &Model| {
            let taken = model.free_slots.lock(&model.epoch).pop();
            let Some(slot) = taken else {
                return false;
            };
            model.refill(slot);
            if let Some(block) = model.pop(slot) {
                model.free(slot, block);
            }
            model.free_slots.lock(&model.epoch).push(slot);
            true
        };
        let other = {
            let model = model.clone();
            thread::spawn(move || use_slot(&model))
        };
        use_slot(&model);
        other.join().unwrap();
        let [allocated, freed] = model.snapshot();
        assert_eq!(allocated, freed);
    });
}

/// Two counts that an owner changes together are equal in each reading.
#[test]
fn a_reading_has_all_changes_of_an_owner_or_none() {
    check(|| {
        let shared = Arc::new((Epoch::new(), CountedLock::<(), 2>::new(())));
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut owner = shared.1.lock(&shared.0);
                    owner.add(0, 1);
                    owner.add(1, 1);
                }
            })
        };
        for _ in 0..2 {
            let epoch = shared.0.turn();
            let [first, second] = shared.1.at(epoch);
            assert_eq!(first, second);
        }
        owner.join().unwrap();
        let epoch = shared.0.turn();
        assert_eq!(shared.1.at(epoch), [2, 2]);
    });
}

/// A block of a new page, which an owner of two locks counts in both: no reading has the block without the
/// page.
#[test]
fn no_reading_has_a_block_without_its_page() {
    check(|| {
        let shared = Arc::new((
            Epoch::new(),
            CountedLock::<(), 1>::new(()),
            CountedLock::<(), 1>::new(()),
        ));
        let owner = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (epoch, blocks, pages) = &*shared;
                let mut blocks = blocks.lock(epoch);
                pages.lock(epoch).add(0, 1);
                blocks.follow(epoch);
                blocks.add(0, 1);
            })
        };
        let (epoch, blocks, pages) = &*shared;
        let turned = epoch.turn();
        let ([blocks], [pages]) = (blocks.at(turned), pages.at(turned));
        assert!(blocks <= pages, "{blocks} blocks, {pages} pages");
        owner.join().unwrap();
    });
}
