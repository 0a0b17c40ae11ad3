//! The heap profile of an arena, compared with the arena's operations. At rate 1, the profile
//! contains every object.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod chance;

use plimsoll_checks::profile::{read_profile, read_with_idle};
use plimsoll_testkit::{child, pprof};
use std::cell::{Cell, RefCell};
use std::hint::black_box;

use gc_arena::arena::CollectionPhase;
use gc_arena::{Collect, Gc, Mutation, Rootable};
use plimsoll::gc::{Cause, Collector};
use plimsoll::profile::Detail;
use plimsoll_gc_arena::Arena;

use chance::Chance;
use pprof::Profile;

/// Sizes in bytes that no other allocation has.
const OBJECT: usize = 920;
const OWNED: usize = 936;
const LEFT_BEHIND: usize = 952;

/// Fills an object up to that size, besides gc-arena's two words, a pointer and a slice.
const FILLER: usize = OBJECT - 16 - 8 - 16;

thread_local! {
    /// The number of objects dropped on this thread.
    static DROPPED: Cell<i64> = const { Cell::new(0) };
    /// Blocks that drops allocated and kept.
    static BEHIND: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

fn block(size: usize) -> Box<[u8]> {
    black_box(vec![1; size]).into_boxed_slice()
}

/// Allocates two blocks on drop, and keeps one of them.
struct Contents {
    _owned: Box<[u8]>,
}

impl Drop for Contents {
    fn drop(&mut self) {
        DROPPED.set(DROPPED.get() + 1);
        drop(block(LEFT_BEHIND));
        let kept = block(LEFT_BEHIND);
        BEHIND.with_borrow_mut(|behind| {
            behind.push(kept);
            if behind.len() > 20 {
                behind.drain(..10);
            }
        });
    }
}

#[derive(Collect)]
#[collect(no_drop)]
struct Object<'gc> {
    next: Option<Gc<'gc, Object<'gc>>>,
    #[collect(require_static)]
    _contents: Contents,
    _filler: [u8; FILLER],
}

type Objects = Arena<Rootable![Vec<Gc<'_, Object<'_>>>]>;

#[inline(never)]
fn object<'gc>(
    mutation: &Mutation<'gc>,
    next: Option<Gc<'gc, Object<'gc>>>,
) -> Gc<'gc, Object<'gc>> {
    let object = Object {
        next,
        _contents: Contents {
            _owned: block(OWNED),
        },
        _filler: [0; FILLER],
    };
    Gc::new(mutation, object)
}

/// Returns the numbers of blocks of a size that are allocated and in use, by the profile.
fn shown(profile: &Profile, size: usize) -> [i64; 2] {
    let mut sums = [0; 2];
    for sample in &profile.sample {
        let [allocated, _, in_use, _] = sample.value[..] else {
            panic!("{:?}", sample.value)
        };
        assert!(
            0 <= in_use && in_use <= allocated,
            "{in_use} of {allocated}"
        );
        if profile.number(sample, "bytes") == Some(size as i64) {
            sums[0] += allocated;
            sums[1] += in_use;
        }
    }
    sums
}

fn profile() -> Profile {
    // Names take long to resolve, and are not compared.
    read_with_idle("heap", Detail::Addresses)
}

fn tested(name: &str, test: fn()) {
    child::run(name, "heap_rate=1", test);
}

/// Allocations up to a mark termination, and drops up to the end of the sweep after it.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    allocated: i64,
    dropped: i64,
    forced: bool,
    ended: bool,
}

/// An arena whose calls each end at most one cycle, and its expected profile.
struct Watched {
    arena: Objects,
    allocated: i64,
    cycles: Vec<Cycle>,
}

impl Watched {
    fn new() -> Self {
        Self {
            arena: Objects::with_name("objects", |_| Vec::new()).unwrap(),
            allocated: 0,
            cycles: Vec::new(),
        }
    }

    fn change(&mut self, chance: &mut Chance) {
        let count = chance.below(8);
        self.arena.mutate_root(|mutation, root| {
            for _ in 0..count {
                let next = chance.of(root).copied();
                root.push(object(mutation, next));
            }
            for _ in 0..chance.below(8) {
                if !root.is_empty() {
                    root.swap_remove(chance.below(root.len()));
                }
            }
        });
        self.allocated += count as i64;
    }

    /// Records the effect of a call of the collector.
    fn collect(&mut self, work: impl FnOnce(&mut Objects)) {
        let forced = |arena: &Objects| arena.collector().stats().forced_cycles;
        let before = (self.arena.cycles(), forced(&self.arena));
        work(&mut self.arena);
        if self.arena.cycles() > before.0 {
            assert_eq!(self.arena.cycles(), before.0 + 1, "one at a time");
            self.cycles.push(Cycle {
                allocated: self.allocated,
                dropped: 0,
                forced: forced(&self.arena) > before.1,
                ended: false,
            });
        }
        if let Some(last) = self.cycles.last_mut() {
            last.dropped = DROPPED.get();
            last.ended |= self.arena.collection_phase() == CollectionPhase::Sleeping;
        }
    }

    /// Returns the expected numbers of allocated objects and objects in use. They are those of the
    /// last cycle but one, or of the last cycle if it was forced and has ended.
    fn expected(&self) -> Option<[i64; 2]> {
        let shown = match &self.cycles[..] {
            [.., last] if last.forced && last.ended => last,
            [.., before, _] => before,
            _ => return None,
        };
        Some([shown.allocated, shown.allocated - shown.dropped])
    }
}

/// Makes the profile show everything up to now, by a collector that has nothing to free.
fn show_everything() -> Collector {
    let collector = Collector::register("another").unwrap();
    for _ in 0..2 {
        let cycle = collector.begin(Cause::Forced);
        cycle.mark_termination().finish(0, 0);
        cycle.end();
        profile();
    }
    collector
}

#[test]
fn objects_freed_by_a_sweep_are_in_no_profile_of_its_cycle() {
    tested(
        "objects_freed_by_a_sweep_are_in_no_profile_of_its_cycle",
        || {
            let mut chance = Chance::new(3);
            let mut watched = Watched::new();
            let mut looked = 0;
            for step in 0..300 {
                watched.change(&mut chance);
                let did = match chance.below(12) {
                    0 => {
                        watched.collect(Objects::finish_cycle);
                        "finish_cycle"
                    }
                    1 => {
                        watched.collect(|arena| _ = arena.finish_marking());
                        "finish_marking"
                    }
                    2 => {
                        watched.collect(|arena| {
                            if let Some(marked) = arena.mark_debt() {
                                marked.start_sweeping();
                            }
                        });
                        "start_sweeping"
                    }
                    _ => {
                        // Adds debt, as a larger script would.
                        let debt = chance.below(60) as f64;
                        watched.arena.metrics().adjust_debt(debt);
                        watched.collect(Objects::cycle_debt);
                        "cycle_debt"
                    }
                };
                // A mark termination publishes nothing while the previous one is still being folded;
                // the reader waits for the folding.
                let profile = profile();
                if let Some(expected) = watched.expected() {
                    assert_eq!(shown(&profile, OBJECT), expected, "step {step}: {did}");
                    assert_eq!(shown(&profile, OWNED), expected, "step {step}: {did}");
                    looked += i32::from(expected[1] > 0);
                }
            }
            assert!(looked > 150 && watched.cycles.len() > 40, "{looked}");

            // A cycle that is forced from its beginning shows all objects.
            for _ in 0..2 {
                watched.collect(Objects::finish_cycle);
                profile();
            }
            let left = watched.arena.metrics().total_gc_count() as i64;
            let now = [watched.allocated, left];
            assert_eq!(shown(&profile(), OBJECT), now);
            let behind = |profile: &Profile| shown(profile, LEFT_BEHIND);
            // Allocations by drops since the mark termination appear in the next one.
            watched.collect(Objects::finish_cycle);
            let kept = BEHIND.with_borrow(|behind| behind.len()) as i64;
            assert_eq!(behind(&profile()), [2 * DROPPED.get(), kept]);

            // The frees when the arena is dropped count as the program's.
            drop(watched);
            let _collector = show_everything();
            assert_eq!(shown(&profile(), OBJECT), [now[0], 0]);
            assert_eq!(shown(&profile(), OWNED), [now[0], 0]);
        },
    );
}

#[test]
fn no_bucket_shows_more_frees_than_allocations_with_many_arenas() {
    tested(
        "no_bucket_shows_more_frees_than_allocations_with_many_arenas",
        || {
            let threads: Vec<_> = (0..3)
                .map(|seed| {
                    std::thread::spawn(move || {
                        let mut chance = Chance::new(seed + 20);
                        let mut arena = Objects::with_name("objects", |_| Vec::new()).unwrap();
                        for _ in 0..1500 {
                            arena.mutate_root(|mutation, root| {
                                for _ in 0..chance.below(20) {
                                    let next = chance.of(root).copied();
                                    root.push(object(mutation, next));
                                }
                                root.truncate(chance.below(40));
                            });
                            arena.collect_debt();
                            if chance.below(200) == 0 {
                                // Drops the arena in any phase.
                                arena = Objects::with_name("objects", |_| Vec::new()).unwrap();
                            }
                        }
                        drop(arena);
                        BEHIND.take();
                    })
                })
                .collect();
            let mut read = 0;
            while read < 10 || threads.iter().any(|thread| !thread.is_finished()) {
                shown(&profile(), OBJECT);
                read += 1;
            }
            for thread in threads {
                thread.join().unwrap();
            }
            // After all frees are shown, nothing is in use.
            let _collector = show_everything();
            let profile = profile();
            for size in [OBJECT, OWNED, LEFT_BEHIND] {
                let [allocated, in_use] = shown(&profile, size);
                assert!(
                    allocated > 1000 && in_use == 0,
                    "{size}: {in_use} of {allocated}"
                );
            }
        },
    );
}

#[test]
fn the_maker_of_an_object_is_the_leaf() {
    tested("the_maker_of_an_object_is_the_leaf", || {
        let mut arena = Objects::with_name("objects", |_| Vec::new()).unwrap();
        arena.mutate_root(|mutation, root| root.push(object(mutation, None)));
        arena.finish_cycle();
        let profile = read_profile("heap");
        let samples = profile.at("object");
        let of_size = |size| {
            let samples = samples.iter().copied();
            let of_size = samples.filter(|sample| profile.number(sample, "bytes") == Some(size));
            profile.sum(of_size).inuse_objects
        };
        assert_eq!(of_size(OBJECT as i64), 1, "not gc-arena's functions");
    });
}
