//! Walks that the cache answers are those that a new walk would find.

use std::hint::black_box;

use plimsoll_unwind::cache_counts::{self, CacheCounts};
use plimsoll_unwind::frame_pointers;
use plimsoll_unwind::modules::ModuleList;
use plimsoll_unwind::registers::{Registers, Start};
use plimsoll_unwind::unwind_tables::{self, Context};
use plimsoll_unwind::walk::{End, Frames};
use plimsoll_unwind::walk_cache::{
    Beginning, IN_SET, MAX_WORDS, Trail, WalkMethod, find, remember,
};

/// False with a sanitizer, whose alignment of frames must be evaluated each time.
const FRAMES_ARE_PLAIN: bool = !cfg!(plimsoll_sanitized);

/// Returns the walk from the caller in two forms: from the cache, if stored, and by the tables.
#[inline(always)]
fn both(modules: &ModuleList) -> (Option<Vec<usize>>, Vec<usize>) {
    let start = Start::Here(Registers::here());
    walk_both(start, modules)
}

#[inline(never)]
fn walk_both(start: Start, modules: &ModuleList) -> (Option<Vec<usize>>, Vec<usize>) {
    let from = Beginning::new(start, WalkMethod::Tables).expect("it is the thread's own stack");
    let mut found = vec![0; 128];
    let met = find(&from, |at, frame| found[at] = frame);
    found.truncate(met.map_or(0, |(_, count)| count));
    let mut frames = [0; 128];
    let mut trail = Trail::new();
    let mut context = Context::new_in();
    let walk = unwind_tables::walk(
        start,
        modules,
        &mut context,
        &mut trail,
        Frames::leaf_end(&mut frames),
    );
    assert_eq!(walk.end, End::Outermost);
    if met.is_none() {
        remember(&from, &trail);
    }
    (met.map(|_| found), frames[..walk.frames].to_vec())
}

#[inline(never)]
fn deep(levels: usize, work: &mut dyn FnMut()) -> usize {
    let padding = black_box([levels; 3]);
    if levels == 0 {
        work();
    } else if levels % 3 == 0 {
        // The same function from another call site, at the same depth.
        black_box(deep(levels - 1, work));
    } else {
        deep(levels - 1, work);
    }
    padding[1]
}

/// Calls `work` by one of several paths of equal depth that differ somewhere in between.
#[inline(never)]
fn by_way(ways: u32, levels: u32, work: &mut dyn FnMut()) -> u32 {
    let padding = black_box([ways; 2]);
    match (levels, ways & 1) {
        (0, _) => work(),
        (_, 0) => {
            by_way(ways >> 1, levels - 1, work);
            black_box(padding[1] + 1);
        }
        (..) => {
            black_box(padding[1] + 2);
            by_way(ways >> 1, levels - 1, work);
            black_box(padding[1] * 3);
        }
    }
    padding[0]
}

/// Three linked frames on the calling thread's stack; the last one leads out of it.
struct Chain([usize; 16]);

/// The positions of the frames.
const FRAMES: [usize; 3] = [2, 5, 9];

impl Chain {
    fn link(&mut self) -> Start {
        let base = self.0.as_ptr() as usize;
        for (number, at) in FRAMES.into_iter().enumerate() {
            let next = FRAMES.get(number + 1).copied().unwrap_or(self.0.len());
            self.0[at] = base + 8 * next;
            self.0[at + 1] = 0x10_000 + number;
        }
        let at = Registers {
            instruction: 0x20_000,
            stack: base as u64,
            frame: (base + 8 * FRAMES[0]) as u64,
            link: 0,
        };
        Start::Limited(at, base + size_of_val(&self.0))
    }
}

/// Returns the walk of the chain from the cache, if stored, and a new walk, which it stores.
#[inline(never)]
fn both_of_chain(start: Start) -> (Option<Vec<usize>>, Vec<usize>) {
    let from = Beginning::new(start, WalkMethod::Chain).expect("it is the thread's own stack");
    let mut found = vec![0; 8];
    let met = find(&from, |at, frame| found[at] = frame);
    found.truncate(met.map_or(0, |(_, count)| count));
    let mut frames = [0; 8];
    let mut trail = Trail::new();
    let walk = frame_pointers::walk_noted(
        start.registers(),
        start.limit(),
        Frames::leaf_end(&mut frames),
        &mut trail,
    );
    assert_eq!(walk.end, End::Outermost);
    // Only every second call stores the walk.
    while met.is_none() && remember(&from, &trail).is_none() {}
    (met.map(|_| found), frames[..walk.frames].to_vec())
}

#[inline(never)]
fn chain_deeper(levels: usize) {
    let mut chain = Chain([0; 16]);
    let start = black_box(&mut chain).link();
    let (met, frames) = both_of_chain(start);
    assert_eq!(frames, [0x10_000, 0x10_001, 0x10_002]);
    assert_eq!(met.as_ref(), Some(&frames), "it is the same elsewhere");
    if levels > 0 {
        chain_deeper(levels - 1);
    }
    black_box(chain.0[0]);
}

#[test]
fn a_chain_is_remembered_as_it_was() {
    let mut chain = Chain([0; 16]);
    let start = black_box(&mut chain).link();
    both_of_chain(start);
    chain_deeper(3);
    // A walk by tables from the same start could have another result.
    let by_tables = Beginning::new(start, WalkMethod::Tables).unwrap();
    assert!(find(&by_tables, |_, _| ()).is_none());
    // Other words do not matter.
    chain.0[4] = 1;
    let (met, frames) = both_of_chain(start);
    assert_eq!(met, Some(frames));
    let whole = chain.0;
    let base = chain.0.as_ptr() as usize;
    for (at, value) in [
        // The second frame has another caller.
        (6, 0x20_001),
        // The chain ends at the second frame.
        (6, 0),
        // The first frame skips the second.
        (2, base + 8 * 9),
        // The second frame leads to the limit.
        (5, base + 8 * 16),
        // The last frame leads elsewhere: to null, back, or up to memory that the walk never reads.
        (9, 0),
        (9, base),
        (9, base + 8 * 17),
        (9, usize::MAX),
    ] {
        black_box(&mut chain).0 = whole;
        chain.0[at] = value;
        let (met, frames) = both_of_chain(start);
        assert_eq!(met, None, "{at} is {value:#x}");
        // The new chain is stored in turn.
        let (met, again) = both_of_chain(start);
        assert_eq!((met.as_ref(), &again), (Some(&frames), &frames));
    }
    black_box(&mut chain).0 = whole;
    // A misaligned frame is not read.
    chain.0[2] = base + 8 * 5 + 1;
    black_box(&chain);
    let walk = frame_pointers::walk_noted(
        start.registers(),
        start.limit(),
        Frames::leaf_end(&mut [0; 8]),
        &mut Trail::new(),
    );
    assert_eq!((walk.frames, walk.end), (1, End::Lost));
}

#[test]
fn a_walk_that_was_done_before_is_remembered_as_it_was() {
    let modules = ModuleList::from_loader();
    let before = cache_counts::read();
    let mut remembered = 0;
    for levels in [0, 1, 5, 20] {
        // Two paths that alternate would never be stored, so the loop has one call site: it is not
        // unrolled, and its body is no tail call.
        let mut count = 0;
        while black_box(count) < 8 {
            count += 1;
            let mut work = || {
                let (found, walked) = both(&modules);
                if let Some(found) = found {
                    assert_eq!(found, walked);
                    remembered += 1;
                }
            };
            black_box(deep(levels, &mut work));
        }
    }
    assert!(remembered >= 4 * 4 || !FRAMES_ARE_PLAIN, "{remembered}");

    // Other tests count as well.
    let after = cache_counts::read();
    let walks = |counts: CacheCounts| counts.walks_missing + counts.walks_changed;
    assert!(after.walks_found >= before.walks_found + remembered);
    assert!(walks(after) >= walks(before) + 4 * 8 - remembered);
    assert!(after.rules_found > before.rules_found && after.rules_missing > 0);
}

/// A path that is stored must not answer for another with the same beginning and end.
#[test]
fn paths_that_differ_in_between_are_distinguished() {
    let modules = ModuleList::from_loader();
    let mut remembered = 0;
    let mut seen = std::collections::HashSet::new();
    for turn in 0..4000u32 {
        let ways = turn.wrapping_mul(0x9e37_79b9) >> (32 - 3);
        by_way(ways, 6, &mut || {
            let (found, walked) = both(&modules);
            if let Some(found) = found {
                assert_eq!(found, walked);
                remembered += 1;
            }
            seen.insert(walked);
        });
    }
    assert_eq!(seen.len(), 8);
    assert!(remembered > 0 || !FRAMES_ARE_PLAIN);
}

/// Threads walk and store in the same sets at the same time.
#[test]
fn half_written_entries_are_ignored() {
    let modules = ModuleList::from_loader();
    std::thread::scope(|scope| {
        for first in 0..4u32 {
            let modules = &modules;
            scope.spawn(move || {
                for turn in 0..3000u32 {
                    by_way((turn * 7 + first) % 64, 6, &mut || {
                        let (found, walked) = both(modules);
                        assert!(found.is_none_or(|found| found == walked));
                    });
                }
            });
        }
    });
}

#[test]
fn another_stack_is_none_of_the_threads_own() {
    let words = [0u64; 64];
    let heap = words.to_vec();
    let at = Registers {
        stack: heap.as_ptr() as u64,
        ..Registers::here()
    };
    assert!(Beginning::new(Start::Here(at), WalkMethod::Tables).is_none());
    let odd = Registers {
        stack: Registers::here().stack + 1,
        ..at
    };
    assert!(Beginning::new(Start::Here(odd), WalkMethod::Tables).is_none());
}

#[test]
fn a_walk_that_is_too_long_is_not_remembered() {
    let modules = ModuleList::from_loader();
    for _ in 0..2 * IN_SET {
        deep(MAX_WORDS, &mut || {
            let start = Start::Here(Registers::here());
            let from = Beginning::new(start, WalkMethod::Tables).unwrap();
            let mut frames = [0; 256];
            let mut trail = Trail::new();
            let mut context = Context::new_in();
            let walk = unwind_tables::walk(
                start,
                &modules,
                &mut context,
                &mut trail,
                Frames::leaf_end(&mut frames),
            );
            assert_eq!(walk.end, End::Outermost);
            assert!(walk.frames > MAX_WORDS);
            assert!(remember(&from, &trail).is_none());
            assert!(find(&from, |_, _| ()).is_none());
        });
    }
}
