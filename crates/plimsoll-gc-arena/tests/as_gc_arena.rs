//! Compares the wrapper's arena with gc-arena's own, driven by the same calls.

use gc_arena::arena::CollectionPhase;
use gc_arena::metrics::Pacing;
use gc_arena::{Collect, Gc, GcWeak, Mutation, RefLock, Rootable};
use plimsoll_gc_arena::Arena;

mod chance;

use chance::Chance;

#[derive(Collect)]
#[collect(no_drop)]
struct Node<'gc> {
    children: Vec<Gc<'gc, RefLock<Node<'gc>>>>,
    weak: Option<GcWeak<'gc, RefLock<Node<'gc>>>>,
}

type NodePointer<'gc> = Gc<'gc, RefLock<Node<'gc>>>;

#[derive(Default, Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    nodes: Vec<NodePointer<'gc>>,
}

type Wrapped = Arena<Rootable![Root<'_>]>;
type Plain = gc_arena::Arena<Rootable![Root<'_>]>;

/// Changes the graph, in the same way for the same random numbers.
fn change<'gc>(mutation: &Mutation<'gc>, root: &mut Root<'gc>, chance: &mut Chance) {
    for _ in 0..chance.below(40) {
        let children = (0..chance.below(3))
            .filter_map(|_| chance.of(&root.nodes).copied())
            .collect();
        let weak = chance.of(&root.nodes).map(|&node| Gc::downgrade(node));
        let node = Gc::new(mutation, RefLock::new(Node { children, weak }));
        match (chance.below(4), chance.of(&root.nodes)) {
            (0, _) => {}
            (1, Some(parent)) => parent.borrow_mut(mutation).children.push(node),
            _ => root.nodes.push(node),
        }
    }
    for _ in 0..chance.below(20) {
        if root.nodes.is_empty() {
            break;
        }
        let at = chance.below(root.nodes.len());
        let node = root.nodes.swap_remove(at);
        if chance.below(2) == 0 {
            node.borrow_mut(mutation).children.clear();
        }
    }
}

/// The wrapper's arena and gc-arena's own, side by side.
struct Pair {
    wrapped: Wrapped,
    plain: Plain,
}

impl Pair {
    fn new(pacing: Pacing) -> Self {
        let mut wrapped = Wrapped::with_name("as gc-arena", |_| Root::default()).unwrap();
        let plain = Plain::new(|_| Root::default());
        wrapped.set_pacing(pacing);
        plain.metrics().set_pacing(pacing);
        Self { wrapped, plain }
    }

    fn agrees(&self, step: usize, did: &str) {
        assert_eq!(
            self.wrapped.collection_phase(),
            self.plain.collection_phase(),
            "step {step}: {did}"
        );
        assert_eq!(
            self.wrapped.metrics().total_gc_count(),
            self.plain.metrics().total_gc_count(),
            "step {step}: {did}"
        );
        let debt = self.wrapped.metrics().allocation_debt();
        let plain = self.plain.metrics().allocation_debt();
        assert!(
            (debt - plain).abs() < 1e-6,
            "step {step}: {did}: {debt}, not {plain}"
        );
    }
}

/// Resurrects dead nodes to which nodes have weak pointers, and counts them.
macro_rules! finalize {
    ($marked:expr) => {
        $marked.finalize(|finalization, root| {
            let mut count = 0;
            for node in &root.nodes {
                let Some(weak) = node.borrow().weak else {
                    continue;
                };
                if weak.is_dead(finalization) {
                    weak.resurrect(finalization);
                    count += 1;
                }
            }
            count
        })
    };
}

#[test]
fn every_call_leaves_the_arena_as_gc_arenas_own_would() {
    let quick = Pacing {
        sleep_factor: 0.1,
        min_sleep: 16,
        ..Pacing::DEFAULT
    };
    for (seed, pacing) in [
        (1, Pacing::DEFAULT),
        (2, Pacing::STOP_THE_WORLD),
        (3, quick),
        (4, quick),
    ] {
        let mut chance = Chance::new(seed);
        let mut pair = Pair::new(pacing);
        let (mut cycles, mut resurrected) = (0, 0);
        for step in 0..3000 {
            let mut same = chance.clone();
            pair.wrapped
                .mutate_root(|mutation, root| change(mutation, root, &mut same));
            pair.plain
                .mutate_root(|mutation, root| change(mutation, root, &mut chance));
            let before = pair.wrapped.collection_phase();
            let did = match chance.below(24) {
                0 => {
                    pair.wrapped.finish_cycle();
                    pair.plain.finish_cycle();
                    "finish_cycle"
                }
                1 => {
                    let count = pair
                        .wrapped
                        .finish_marking()
                        .map(|marked| finalize!(marked));
                    let expected = pair.plain.finish_marking().map(|marked| finalize!(marked));
                    assert_eq!(count, expected);
                    resurrected += count.unwrap_or(0);
                    "finish_marking and finalize"
                }
                2 => {
                    if let Some(marked) = pair.wrapped.finish_marking() {
                        marked.start_sweeping();
                    }
                    if let Some(marked) = pair.plain.finish_marking() {
                        marked.start_sweeping();
                    }
                    "start_sweeping"
                }
                3..6 => {
                    let count = pair.wrapped.mark_debt().map(|marked| finalize!(marked));
                    assert_eq!(
                        count,
                        pair.plain.mark_debt().map(|marked| finalize!(marked))
                    );
                    resurrected += count.unwrap_or(0);
                    "mark_debt and finalize"
                }
                6..9 => {
                    pair.wrapped.cycle_debt();
                    pair.plain.cycle_debt();
                    "cycle_debt"
                }
                9 => {
                    let debt = chance.below(300) as f64 - 100.0;
                    pair.wrapped.metrics().adjust_debt(debt);
                    pair.plain.metrics().adjust_debt(debt);
                    "adjust_debt"
                }
                _ => {
                    pair.wrapped.collect_debt();
                    pair.plain.collect_debt();
                    "collect_debt"
                }
            };
            pair.agrees(step, did);
            let swept = pair.wrapped.cycles();
            assert!(swept >= cycles);
            if before == CollectionPhase::Sleeping && did == "finish_cycle" {
                assert_eq!(swept, cycles + 1);
            }
            cycles = swept;
        }
        assert!(cycles > 100 && resurrected > 10, "{cycles}, {resurrected}");
    }
}

#[test]
fn a_root_becomes_another_in_the_middle_of_a_cycle() {
    let mut arena = Wrapped::with_name("other root", |_| Root::default()).unwrap();
    arena.mutate_root(|mutation, root| change(mutation, root, &mut Chance::new(5)));
    assert!(arena.finish_marking().is_some());
    let other = arena.map_root::<Rootable![Vec<NodePointer<'_>>]>(|_, root| root.nodes);
    assert_eq!(other.collection_phase(), CollectionPhase::Marking);
    let mut other = other
        .try_map_root::<Rootable![(Vec<NodePointer<'_>>, u8)], ()>(|_, nodes| Ok((nodes, 7)))
        .unwrap_or_else(|()| unreachable!());
    other.finish_cycle();
    assert_eq!(other.cycles(), 1);
    let kept = other.mutate(|_, (nodes, _)| nodes.len());
    assert!(other.metrics().total_gc_count() >= kept);
    let plain = other.into_inner();
    assert_eq!(
        plain.mutate(|_, (nodes, seven)| (nodes.len(), *seven)),
        (kept, 7)
    );
    let failed = Wrapped::with_name("other root", |_| Root::default())
        .unwrap()
        .try_map_root::<Rootable![Vec<NodePointer<'_>>], &str>(|_, _| Err("no"));
    assert_eq!(failed.err(), Some("no"));
}
