//! The figures of an arena's collections, compared with gc-arena's figures and the remaining
//! objects.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod chance;

use plimsoll_testkit::child;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gc_arena::arena::CollectionPhase;
use gc_arena::collect::Trace;
use gc_arena::metrics::Pacing;
use gc_arena::{Collect, Gc, GcWeak, Mutation, Rootable};
use plimsoll::gc::{self, Collector, CollectorStats};
use plimsoll::gc_stats;
use plimsoll::metrics::{self, Sample, Value};
use plimsoll_gc_arena::{Arena, Weight};

use chance::Chance;

#[derive(Collect)]
#[collect(no_drop)]
struct Node<'gc> {
    next: Option<Gc<'gc, Node<'gc>>>,
    #[collect(require_static)]
    text: Vec<u8>,
    weight: Weight,
}

#[derive(Default, Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    nodes: Vec<Gc<'gc, Node<'gc>>>,
}

type Nodes = Arena<Rootable![Root<'_>]>;

fn arena(name: &str) -> Nodes {
    Nodes::with_name(name, |_| Root::default()).unwrap()
}

fn node<'gc>(
    mutation: &Mutation<'gc>,
    next: Option<Gc<'gc, Node<'gc>>>,
    text: usize,
) -> Gc<'gc, Node<'gc>> {
    let node = Node {
        next,
        text: vec![0; text],
        weight: Weight::of::<Node>().and(text),
    };
    Gc::new(mutation, node)
}

/// Adds nodes, some of which refer to others, and removes some.
fn change<'gc>(mutation: &Mutation<'gc>, root: &mut Root<'gc>, chance: &mut Chance) {
    for _ in 0..chance.below(60) {
        let next = chance.of(&root.nodes).copied();
        root.nodes.push(node(mutation, next, chance.below(100)));
    }
    for _ in 0..chance.below(60) {
        if !root.nodes.is_empty() {
            let at = chance.below(root.nodes.len());
            root.nodes.swap_remove(at);
        }
    }
    // A node that is written to is traced again.
    for _ in 0..chance.below(10) {
        if let Some(&node) = chance.of(&root.nodes) {
            Gc::write(mutation, node);
        }
    }
}

/// Returns the number of reachable objects, and their bytes.
fn reachable(arena: &Nodes) -> (u64, u64) {
    arena.mutate(|_, root| {
        let mut seen = std::collections::HashSet::new();
        let mut left = root.nodes.clone();
        let mut bytes = 0;
        while let Some(node) = left.pop() {
            if seen.insert(Gc::as_ptr(node)) {
                bytes += 2 * size_of::<usize>() + size_of::<Node>() + node.text.len();
                left.extend(node.next);
            }
        }
        (seen.len() as u64, bytes as u64)
    })
}

fn of_name(name: &str) -> CollectorStats {
    let all = gc::collectors();
    let found = all.into_iter().find(|stats| stats.name == name);
    found.expect("it was registered")
}

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

fn metric(name: &'static str) -> Value {
    let mut samples = [Sample::new(name)];
    metrics::read(&mut samples);
    let [sample] = samples;
    sample.value
}

/// Finishes the open cycle, and runs another during which no object becomes unreachable.
fn settle(arena: &mut Nodes) {
    if arena.collection_phase() != CollectionPhase::Sleeping {
        arena.finish_cycle();
    }
    arena.finish_cycle();
}

#[test]
fn live_bytes_are_those_that_a_cycle_leaves() {
    tested("live_bytes_are_those_that_a_cycle_leaves", || {
        let mut arena = arena("nodes");
        let mut chance = Chance::new(7);
        for _ in 0..300 {
            arena.mutate_root(|mutation, root| change(mutation, root, &mut chance));
            if chance.below(2) == 0 {
                // Does a part of the marking before the last changes.
                arena
                    .metrics()
                    .adjust_debt((200 + chance.below(200)) as f64);
                let _ = arena.mark_debt();
                arena.mutate_root(|mutation, root| change(mutation, root, &mut chance));
            }
            let cycles = arena.cycles();
            arena.finish_cycle();
            assert_eq!(arena.cycles(), cycles + 1);
            // Marked objects survive, even those that died since.
            let left = arena.metrics().total_gc_count() as u64;
            assert_eq!(arena.live_objects(), left);
            assert!(arena.live_objects() >= reachable(&arena).0);
            settle(&mut arena);
            let live = (arena.live_objects(), arena.live_bytes());
            assert_eq!(live, reachable(&arena));
            assert_eq!(arena.collector().stats().live_bytes, live.1);
        }
        assert_eq!(arena.collector().stats().misuses, 0);
    });
}

#[test]
fn every_cycle_is_counted_once_and_every_step_is_a_pause() {
    tested(
        "every_cycle_is_counted_once_and_every_step_is_a_pause",
        || {
            let mut arena = arena("nodes");
            let mut chance = Chance::new(11);
            // Counts of cycles, from phases observed outside.
            let (mut began, mut forced) = (0, 0);
            let mut before = gc_stats();
            for _ in 0..2000 {
                arena.mutate_root(|mutation, root| change(mutation, root, &mut chance));
                let phase = arena.collection_phase();
                let owes = arena.metrics().allocation_debt() > 0.0;
                let sleeps = phase == CollectionPhase::Sleeping;
                let pauses = arena.collector().stats().pauses;
                if chance.below(50) == 0 {
                    arena.finish_cycle();
                    forced += u64::from(sleeps);
                    assert_eq!(arena.collection_phase(), CollectionPhase::Sleeping);
                    began += u64::from(sleeps);
                } else {
                    arena.cycle_debt();
                    began += u64::from(sleeps && owes);
                    let stepped = arena.collector().stats().pauses - pauses;
                    assert_eq!(stepped, u64::from(owes));
                }
                let sleeping = arena.collection_phase() == CollectionPhase::Sleeping;
                let sweeping = arena.collection_phase() == CollectionPhase::Sweeping;
                let stats = arena.collector().stats();
                let terminated = began - u64::from(!sleeping && !sweeping);
                assert_eq!((stats.cycles, arena.cycles()), (terminated, terminated));
                assert!(stats.forced_cycles <= forced && forced <= stats.forced_cycles + 1);
                assert_eq!((stats.abandoned_cycles, stats.misuses), (0, 0));
                let now = gc_stats();
                assert_eq!(now.num_gc, terminated);
                assert!(now.pause_total >= before.pause_total);
                before = now;
            }
            assert!(began > 50 && forced > 10, "{began}, {forced}");
            settle(&mut arena);
            let stats = arena.collector().stats();
            let of_process = gc_stats();
            assert_eq!(stats.forced_cycles, forced + 1);
            assert_eq!(of_process.pause_total, stats.pause_total);
            assert_eq!(of_process.last_gc, stats.last_end);
            let memory = plimsoll::mem_stats();
            assert_eq!(u64::from(memory.num_gc), stats.cycles);
            assert_eq!(memory.next_gc, arena.goal_bytes());
            for (name, expected) in [
                ("/gc/cycles/total:gc-cycles", stats.cycles),
                ("/gc/cycles/forced:gc-cycles", stats.forced_cycles),
                ("/gc/heap/live:bytes", arena.live_bytes()),
                ("/gc/heap/goal:bytes", arena.goal_bytes()),
            ] {
                assert_eq!(metric(name), Value::Uint64(expected), "{name}");
            }
            let Value::Float64Histogram(pauses) = metric("/gc/pauses:seconds") else {
                panic!("it is a histogram");
            };
            assert_eq!(pauses.counts.iter().sum::<u64>(), stats.pauses);
        },
    );
}

#[test]
fn the_goal_is_where_the_next_cycle_begins() {
    tested("the_goal_is_where_the_next_cycle_begins", || {
        for (sleep_factor, live) in [(0.5, 10_000), (2.0, 10_000), (0.5, 100)] {
            let mut arena = arena("nodes");
            arena.set_pacing(Pacing {
                sleep_factor,
                ..Pacing::DEFAULT
            });
            arena.mutate_root(|mutation, root| {
                for _ in 0..live {
                    root.nodes.push(node(mutation, None, 10));
                }
            });
            settle(&mut arena);
            let size = Weight::of::<Node>().and(10).bytes() as u64;
            assert_eq!(arena.live_bytes(), live * size);
            // Adds one node at a time until the collector wakes up.
            let mut bytes = arena.live_bytes();
            while arena.collection_phase() == CollectionPhase::Sleeping {
                arena.mutate_root(|mutation, root| root.nodes.push(node(mutation, None, 10)));
                bytes += size;
                arena.collect_debt();
            }
            // The first node beyond the goal wakes it up.
            assert_eq!(bytes, arena.goal_bytes() + size, "{sleep_factor}, {live}");
        }
    });
}

#[test]
fn bytes_are_absent_without_weights() {
    tested("bytes_are_absent_without_weights", || {
        let mut arena =
            Arena::<Rootable![Vec<Gc<'_, u64>>]>::with_name("numbers", |_| Vec::new()).unwrap();
        arena.mutate_root(|mutation, root| {
            root.extend((0..100).map(|number| Gc::new(mutation, number)));
        });
        arena.finish_cycle();
        assert_eq!(arena.cycles(), 1);
        assert_eq!((arena.live_bytes(), arena.goal_bytes()), (0, 0));
    });
}

#[test]
fn objects_with_only_weak_pointers_are_not_live() {
    tested("objects_with_only_weak_pointers_are_not_live", || {
        type Weak<'gc> = (Option<Gc<'gc, Node<'gc>>>, Option<GcWeak<'gc, Node<'gc>>>);
        let mut arena = Arena::<Rootable![Weak<'_>]>::with_name("weak", |mutation| {
            let node = node(mutation, None, 5);
            (Some(node), Some(Gc::downgrade(node)))
        })
        .unwrap();
        arena.finish_cycle();
        assert_eq!(arena.live_objects(), 1);
        arena.mutate_root(|_, root| root.0 = None);
        arena.finish_cycle();
        // gc-arena keeps the block for the weak pointer, but drops the value.
        assert_eq!(arena.metrics().total_gc_count(), 1);
        assert_eq!((arena.live_objects(), arena.live_bytes()), (0, 0));
        // An object that a finalizer resurrects is live.
        arena.mutate_root(|mutation, root| {
            root.1 = Some(Gc::downgrade(node(mutation, None, 5)));
        });
        let marked = arena.finish_marking().expect("it slept");
        marked.finalize(|finalization, root| {
            let weak = root.1.expect("it was set");
            assert!(weak.is_dead(finalization));
            weak.resurrect(finalization).expect("it was not dropped");
        });
        arena.finish_cycle();
        assert_eq!((arena.live_objects(), arena.cycles()), (1, 3));
    });
}

#[test]
fn the_pacing_follows_the_percentage() {
    tested("the_pacing_follows_the_percentage", || {
        let mut arena = arena("nodes");
        arena.follow_percent();
        arena.mutate_root(|mutation, root| {
            root.nodes
                .extend((0..1000).map(|_| node(mutation, None, 0)));
        });
        let add = |arena: &mut Nodes, count: usize| {
            for _ in 0..count {
                arena.mutate_root(|mutation, _| _ = node(mutation, None, 0));
                arena.collect_debt();
            }
        };
        for percent in [100, 50, 400] {
            gc::set_percent(percent);
            settle(&mut arena);
            let cycles = arena.cycles();
            let live = arena.live_bytes();
            assert_eq!(arena.goal_bytes(), live + live * percent as u64 / 100);
            add(&mut arena, 10 * percent as usize);
            let phase = arena.collection_phase();
            assert_eq!(phase, CollectionPhase::Sleeping, "{percent}");
            add(&mut arena, 1);
            let phase = arena.collection_phase();
            assert_ne!(phase, CollectionPhase::Sleeping, "{percent}");
            assert_eq!(arena.cycles(), cycles);
        }
        settle(&mut arena);
        let cycles = arena.cycles();
        gc::set_percent(-1);
        add(&mut arena, 20_000);
        assert_eq!(arena.cycles(), cycles, "it is off");
        assert!(arena.mark_debt().is_none());
        arena.finish_cycle();
        assert_eq!(arena.cycles(), cycles + 1, "it is forced");
        assert_eq!(arena.goal_bytes(), u64::MAX);
        let mut other = self::arena("nodes");
        other.follow_percent();
        other.finish_cycle();
        assert_eq!(metric("/gc/heap/goal:bytes"), Value::Uint64(u64::MAX));
        drop(other);
        gc::set_percent(100);
        add(&mut arena, 20_000);
        assert!(arena.cycles() > cycles + 3, "it is on again");
    });
}

/// Requests a collection in another thread, and calls `step` until it has ended.
fn collected_while(mut step: impl FnMut()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(gc::collect(Duration::from_secs(60)), "it was not answered");
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            step();
        }
    });
}

#[test]
fn a_requested_collection_is_a_whole_one() {
    tested("a_requested_collection_is_a_whole_one", || {
        let mut arena = arena("nodes");
        // After this cycle, the arena sleeps until there are 256 new objects.
        arena.finish_cycle();
        arena.mutate_root(|mutation, root| {
            root.nodes.push(node(mutation, None, 0));
            node(mutation, None, 0);
        });
        collected_while(|| arena.collect_debt());
        assert_eq!((arena.cycles(), arena.metrics().total_gc_count()), (2, 1));
        assert_eq!(arena.collector().stats().forced_cycles, 2);
        assert!(!arena.collector().is_wanted());

        // An open cycle keeps the objects that it marked, so another cycle is needed.
        for _ in 0..100 {
            arena.mutate_root(|mutation, root| {
                let next = root.nodes.last().copied();
                root.nodes = vec![node(mutation, next, 0)];
            });
        }
        arena.metrics().adjust_debt(170.0);
        arena.collect_debt();
        assert_eq!(arena.collection_phase(), CollectionPhase::Marking);
        arena.mutate_root(|_, root| root.nodes.clear());
        collected_while(|| arena.cycle_debt());
        assert_eq!((arena.cycles(), arena.metrics().total_gc_count()), (4, 0));
        assert_eq!(arena.collector().stats().forced_cycles, 3);
    });
}

#[test]
fn requested_sweeps_are_shown_to_the_program() {
    tested("requested_sweeps_are_shown_to_the_program", || {
        for phase in PHASES {
            let mut arena = arena("nodes");
            arena.mutate_root(|mutation, root| {
                root.nodes.extend((0..100).map(|_| node(mutation, None, 0)));
            });
            assert!(arena.finish_marking().is_some());
            arena.finish_cycle();
            arena.mutate_root(|_, root| root.nodes.truncate(90));
            bring_to(&mut arena, phase);
            let before = arena.cycles();
            arena.mutate_root(|_, root| root.nodes.clear());
            let mut seen = 0;
            collected_while(|| {
                if arena.collection_phase() == CollectionPhase::Sweeping {
                    arena.collect_debt();
                } else if let Some(marked) = arena.mark_debt() {
                    seen += 1;
                    marked.finalize(|_, _| ());
                    if let Some(marked) = arena.finish_marking() {
                        marked.start_sweeping();
                    }
                }
            });
            // A cycle in its marking phase is finished first.
            assert_eq!(arena.cycles() - before, seen, "{phase:?}");
            let marks = matches!(phase, CollectionPhase::Marking | CollectionPhase::Marked);
            assert_eq!(seen, 1 + u64::from(marks), "{phase:?}");
            assert_eq!(arena.metrics().total_gc_count(), 0, "{phase:?}");
        }
    });
}

#[test]
fn a_program_that_has_looked_once_collects_on_and_answers() {
    tested(
        "a_program_that_has_looked_once_collects_on_and_answers",
        || {
            let mut arena = arena("nodes");
            arena.mutate_root(|mutation, root| root.nodes.push(node(mutation, None, 0)));
            assert!(arena.finish_marking().is_some());
            arena.finish_cycle();
            let forced = arena.collector().stats().forced_cycles;
            let mut most = 0;
            collected_while(|| {
                arena.mutate_root(|mutation, _| {
                    for _ in 0..100 {
                        node(mutation, None, 0);
                    }
                });
                arena.collect_debt();
                most = most.max(arena.metrics().total_gc_count());
            });
            assert_eq!(arena.collector().stats().forced_cycles, forced + 1);
            assert!(most < 2000, "{most}");
        },
    );
}

const PHASES: [CollectionPhase; 4] = [
    CollectionPhase::Sleeping,
    CollectionPhase::Marking,
    CollectionPhase::Marked,
    CollectionPhase::Sweeping,
];

/// Brings a sleeping arena of about a hundred nodes to a phase.
fn bring_to(arena: &mut Nodes, phase: CollectionPhase) {
    match phase {
        CollectionPhase::Sleeping => {}
        CollectionPhase::Marking => {
            // The debt is less than the work of marking.
            let metrics = arena.metrics();
            metrics.adjust_debt(1000.0);
            metrics.adjust_debt(10.0 - metrics.allocation_debt());
            arena.collect_debt();
        }
        CollectionPhase::Marked => assert!(arena.finish_marking().is_some()),
        CollectionPhase::Sweeping => {
            let marked = arena.finish_marking();
            marked.expect("it slept").start_sweeping();
        }
    }
    assert_eq!(arena.collection_phase(), phase);
}

#[test]
fn an_arena_may_go_away_in_any_phase() {
    tested("an_arena_may_go_away_in_any_phase", || {
        let (mut completed, mut abandoned) = (0, 0);
        for phase in PHASES {
            for into_inner in [false, true] {
                let mut arena = arena("nodes");
                arena.mutate_root(|mutation, root| {
                    let mut next = None;
                    for _ in 0..100 {
                        next = Some(node(mutation, next, 0));
                    }
                    root.nodes.extend(next);
                });
                bring_to(&mut arena, phase);
                if into_inner {
                    let mut inner = arena.into_inner();
                    inner.finish_cycle();
                    assert_eq!(inner.metrics().total_gc_count(), 100);
                } else {
                    drop(arena);
                }
                match phase {
                    CollectionPhase::Sleeping => {}
                    CollectionPhase::Sweeping => completed += 1,
                    _ => abandoned += 1,
                }
                let stats = of_name("nodes");
                assert_eq!(
                    (stats.cycles, stats.abandoned_cycles, stats.attached),
                    (completed, abandoned, 0)
                );
                assert_eq!((stats.live_bytes, stats.misuses), (0, 0));
            }
        }
        assert!(gc::collect(Duration::ZERO), "no collector to wait for");
    });
}

thread_local! {
    /// The number of panics that remain.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Panics on drop or on tracing, while panics remain.
struct Panics {
    in_drop: bool,
    in_trace: bool,
}

fn panic_once() {
    if let Some(left) = PANICS.get().checked_sub(1) {
        PANICS.set(left);
        panic!("a panic requested by the test");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if self.in_drop {
            panic_once();
        }
    }
}

// SAFETY: the type contains no `Gc` pointers.
unsafe impl<'gc> Collect<'gc> for Panics {
    fn trace<T: Trace<'gc>>(&self, _: &mut T) {
        if self.in_trace {
            panic_once();
        }
    }
}

#[derive(Collect)]
#[collect(no_drop)]
struct Trap {
    weight: Weight,
    panics: Panics,
}

fn panicked<T>(f: impl FnOnce() -> T) {
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
}

#[test]
fn a_panic_leaves_an_arena_that_goes_on() {
    tested("a_panic_leaves_an_arena_that_goes_on", || {
        type Traps = Arena<Rootable![Vec<Gc<'_, Trap>>]>;
        let mut arena = Traps::with_name("traps", |_| Vec::new()).unwrap();
        let add = |arena: &mut Traps, in_drop, in_trace| {
            arena.mutate_root(|mutation, root| {
                for _ in 0..10 {
                    let weight = Weight::of::<Trap>();
                    let panics = Panics { in_drop, in_trace };
                    root.push(Gc::new(mutation, Trap { weight, panics }));
                }
            });
        };
        panicked(|| arena.mutate_root(|_, _| panic!("a panic requested by the test")));
        panicked(|| arena.mutate(|_, _| panic!("a panic requested by the test")));

        // Panics while marking: the cycle continues, and nothing is counted twice.
        add(&mut arena, false, true);
        PANICS.set(3);
        for _ in 0..3 {
            panicked(|| arena.finish_cycle());
            assert_eq!(arena.collection_phase(), CollectionPhase::Marking);
            assert_eq!(arena.cycles(), 0);
        }
        arena.finish_cycle();
        assert_eq!((arena.cycles(), arena.live_objects()), (1, 10));

        // Panics while sweeping: the object whose drop panicked is gone.
        add(&mut arena, true, false);
        arena.mutate_root(|_, root| root.clear());
        PANICS.set(4);
        for _ in 0..4 {
            panicked(|| arena.finish_cycle());
            assert_eq!(arena.collection_phase(), CollectionPhase::Sweeping);
            assert_eq!((arena.cycles(), arena.live_objects()), (2, 0));
        }
        arena.finish_cycle();
        assert_eq!(arena.cycles(), 2);
        assert_eq!(arena.collection_phase(), CollectionPhase::Sleeping);

        // Panics during a requested collection.
        add(&mut arena, true, true);
        let mut panics = 0;
        PANICS.set(5);
        collected_while(|| {
            let collected = catch_unwind(AssertUnwindSafe(|| arena.collect_debt()));
            panics += u32::from(collected.is_err());
        });
        assert_eq!((panics, arena.live_objects()), (5, 10));
        let stats = arena.collector().stats();
        assert_eq!((stats.abandoned_cycles, stats.misuses), (0, 0));
    });
}

/// Collects in a separate arena when it is traced, and when it is dropped.
struct Nested;

fn nested() {
    let mut inner = arena("inner");
    inner.mutate_root(|mutation, root| {
        node(mutation, None, 0);
        root.nodes.push(node(mutation, None, 7));
    });
    inner.finish_cycle();
    assert_eq!(
        (inner.live_objects(), inner.live_bytes()),
        reachable(&inner)
    );
    assert_eq!(inner.metrics().total_gc_count(), 1);
}

impl Drop for Nested {
    fn drop(&mut self) {
        nested();
    }
}

// SAFETY: the type contains no `Gc` pointers.
unsafe impl<'gc> Collect<'gc> for Nested {
    fn trace<T: Trace<'gc>>(&self, _: &mut T) {
        nested();
    }
}

#[derive(Collect)]
#[collect(no_drop)]
struct Outer {
    before: Weight,
    _nested: Nested,
    after: Weight,
}

#[test]
fn a_collection_within_another_is_counted_apart() {
    tested("a_collection_within_another_is_counted_apart", || {
        type Outers = Arena<Rootable![Vec<Gc<'_, Outer>>]>;
        let mut arena = Outers::with_name("outer", |_| Vec::new()).unwrap();
        arena.mutate_root(|mutation, root| {
            for _ in 0..5 {
                let outer = Outer {
                    before: Weight::new(100),
                    _nested: Nested,
                    after: Weight::new(1000),
                };
                root.push(Gc::new(mutation, outer));
            }
        });
        arena.finish_cycle();
        // Each object has two weights.
        assert_eq!((arena.live_objects(), arena.live_bytes()), (10, 5500));
        arena.mutate_root(|_, root| root.truncate(2));
        arena.finish_cycle();
        assert_eq!((arena.live_objects(), arena.live_bytes()), (4, 2200));
        let (outer, inner) = (of_name("outer"), of_name("inner"));
        assert_eq!((outer.cycles, outer.misuses), (2, 0));
        // Objects are traced five times, then twice, and dropped three times.
        assert_eq!((inner.cycles, inner.misuses, inner.attached), (10, 0, 0));
        assert_eq!(gc_stats().num_gc, 12);
        arena.mutate(|_, root| assert_eq!(root[0].before.bytes() + root[0].after.bytes(), 1100));
    });
}

#[test]
fn many_arenas_on_many_threads_have_one_name() {
    const THREADS: u64 = 6;
    tested("many_arenas_on_many_threads_have_one_name", || {
        let kept: Vec<_> = (0..THREADS)
            .map(|seed| {
                std::thread::spawn(move || {
                    let mut chance = Chance::new(seed + 1);
                    let mut arenas = [arena("nodes"), arena("nodes")];
                    let mut gone = 0;
                    for _ in 0..1000 {
                        let arena = &mut arenas[chance.below(2)];
                        arena.mutate_root(|mutation, root| change(mutation, root, &mut chance));
                        arena.collect_debt();
                        if chance.below(100) == 0 {
                            gone += arena.cycles();
                            *arena = self::arena("nodes");
                        }
                    }
                    arenas.iter_mut().for_each(settle);
                    gone + arenas[0].cycles() + arenas[1].cycles()
                })
            })
            .collect();
        let mut seen = 0;
        while kept.iter().any(|thread| !thread.is_finished()) {
            let now = gc_stats().num_gc;
            assert!(now >= seen);
            seen = now;
        }
        let cycles: u64 = kept.into_iter().map(|thread| thread.join().unwrap()).sum();
        let stats = of_name("nodes");
        assert_eq!(
            (stats.cycles, stats.misuses, stats.attached),
            (cycles, 0, 0)
        );
        assert_eq!(gc_stats().num_gc, cycles);
    });
}

/// Collects once more on drop.
struct Late(Nodes);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.mutate_root(|_, root| root.nodes.truncate(1));
        settle(&mut self.0);
        assert_eq!(
            reachable(&self.0),
            (self.0.live_objects(), self.0.live_bytes())
        );
    }
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

#[test]
fn an_arena_collects_while_its_thread_ends() {
    tested("an_arena_collects_while_its_thread_ends", || {
        let ended = std::thread::spawn(|| {
            let mut arena = arena("nodes");
            arena.mutate_root(|mutation, root| {
                root.nodes.extend((0..10).map(|_| node(mutation, None, 0)));
            });
            bring_to(&mut arena, CollectionPhase::Sweeping);
            LATE.set(Some(Late(arena)));
        });
        ended.join().unwrap();
        let stats = of_name("nodes");
        assert_eq!((stats.cycles, stats.abandoned_cycles), (2, 0));
        assert_eq!((stats.attached, stats.misuses), (0, 0));
    });
}

#[test]
fn a_name_that_is_none_is_an_error() {
    tested("a_name_that_is_none_is_an_error", || {
        let made = Nodes::with_name("", |_| unreachable!("no collector is registered"));
        assert_eq!(made.err(), Some(gc::Error::EmptyName));
        let collector = Collector::register_local("nodes").unwrap();
        let made = Nodes::try_new(collector, |_| Err::<Root<'_>, _>("no root"));
        assert_eq!(made.err(), Some("no root"));
        assert_eq!(of_name("nodes").attached, 0);
    });
}
