//! Walks that were done before, and how to see that one would come out the same again.
//!
//! A program is in the same place by the same way time and again. Where a walk by the tables finds
//! each return address depends on nothing but the return addresses before it, and on frame
//! pointers where functions keep their frames by them. So if all the words that a walk has looked
//! at are what they were, at the same distances from the stack pointer, a walk would look at just
//! these words again, and find what it found. To see that takes a load and a comparison for each,
//! and neither rules nor the list of modules.
//!
//! That holds for code which is never unloaded, and for plain frames: what a walk meets otherwise
//! spoils its [`Trail`], and it is not remembered.
//!
//! A walk along frame pointers depends on nothing but the frames it came by. It is remembered for
//! the name of the stack, which would have to be looked for otherwise.
//!
//! Entries are found by the innermost instruction and how deep the stack is. They are read without
//! locks: what is read while somebody writes is not believed. Who would write while another does
//! leaves it.

use super::memory;
use super::registers::{Registers, Start};
use super::table::StackName;
use crate::primitives::{AtomicU32, AtomicU64, Ordering, fence};

/// The most words that a remembered walk has looked at.
const MOST: usize = 96;

/// Sets, a power of two, and how many entries each has.
const SETS: usize = 128;
const IN_SET: usize = 4;

/// What is at a place: how many words above the stack pointer, and what for.
type Place = u32;

/// It is a frame pointer: its distance from the stack pointer is what matters.
const FRAME_POINTER: Place = 1 << 31;
/// It is where the walk ended, and no part of the stack.
const BEYOND: Place = 1 << 30;
const WORDS: Place = BEYOND - 1;

/// In place of the distance of a frame pointer that does not matter.
const NO_FRAME_POINTER: u64 = u64::MAX;

/// How a walk finds its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By return addresses, and by frame pointers where functions have them.
    Tables = 0,
    /// From frame to frame, as each frame pointer has it: a place is that of a frame.
    Chain = 1,
}

/// What a walk looks at.
pub(super) struct Trail {
    stack: u64,
    /// Where the frame pointer comes from that the walker has, unless that was noted already.
    frame_pointer: From,
    /// How far the first frame pointer is from the stack pointer, if that matters.
    first_frame_pointer: Option<u64>,
    length: usize,
    spoilt: bool,
    places: [Place; MOST],
    values: [u64; MOST],
}

#[derive(Clone, Copy)]
enum From {
    Noted,
    /// It is what the register held.
    Register(u64),
    /// It was read at an address.
    Saved(u64, u64),
}

impl Trail {
    pub(super) const fn new() -> Self {
        Self {
            stack: 0,
            frame_pointer: From::Noted,
            first_frame_pointer: None,
            length: 0,
            spoilt: true,
            places: [0; MOST],
            values: [0; MOST],
        }
    }

    pub(super) fn begin(&mut self, at: Registers) {
        self.stack = at.stack;
        self.frame_pointer = From::Register(at.frame);
        self.first_frame_pointer = None;
        self.length = 0;
        self.spoilt = false;
    }

    /// Something else than plain frames of code that stays was met.
    pub(super) fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// A frame was found by the frame pointer.
    pub(super) fn used_frame_pointer(&mut self) {
        match std::mem::replace(&mut self.frame_pointer, From::Noted) {
            From::Noted => {}
            From::Register(value) => {
                self.first_frame_pointer = Some(value.wrapping_sub(self.stack));
            }
            From::Saved(at, value) => {
                self.note(at, FRAME_POINTER, value.wrapping_sub(self.stack));
            }
        }
    }

    /// The frame pointer is what was read at an address.
    pub(super) fn read_frame_pointer(&mut self, at: u64, value: u64) {
        self.frame_pointer = From::Saved(at, value);
    }

    /// The next return address was read at an address.
    pub(super) fn read_return_address(&mut self, at: u64, value: u64) {
        self.note(at, 0, value);
    }

    /// The next frame of a chain is at an address.
    pub(super) fn read_frame(&mut self, at: u64, return_address: u64) {
        self.note(at, 0, return_address);
    }

    /// The next frame of the chain would be at an address that is not looked at.
    pub(super) fn chain_leads_to(&mut self, at: u64) {
        self.note(self.stack, FRAME_POINTER, at.wrapping_sub(self.stack));
    }

    /// What was read last is no return address, but the end.
    pub(super) fn ended_there(&mut self) {
        if let Some(last) = self.length.checked_sub(1) {
            self.places[last] |= BEYOND;
        }
    }

    /// What was read last is of a frame that is beyond the limit, and does not matter.
    pub(super) fn ended_before(&mut self) {
        self.length = self.length.saturating_sub(1);
    }

    fn note(&mut self, at: u64, what: Place, value: u64) {
        let distance = at.wrapping_sub(self.stack);
        let words = distance / 8;
        if self.length == MOST || words > u64::from(WORDS) || distance % 8 != 0 {
            self.spoilt = true;
            return;
        }
        self.places[self.length] = words as Place | what;
        self.values[self.length] = value;
        self.length += 1;
    }
}

/// A remembered walk.
struct Entry {
    /// Odd while somebody writes.
    turn: AtomicU32,
    length: AtomicU32,
    key: AtomicU64,
    depth: AtomicU64,
    /// Of a walk by tables, how far the first frame pointer is from the stack pointer.
    frame_pointer: AtomicU64,
    /// What the stack is called in the table, if that is known: the upper half is the turn that it
    /// belongs to.
    name: AtomicU64,
    places: [AtomicU32; MOST],
    values: [AtomicU64; MOST],
}

struct Set {
    /// How often nothing was found here.
    missed: AtomicU32,
    entries: [Entry; IN_SET],
}

static WALKS: [Set; SETS] = [const {
    Set {
        missed: AtomicU32::new(0),
        entries: [const {
            Entry {
                turn: AtomicU32::new(0),
                length: AtomicU32::new(0),
                key: AtomicU64::new(0),
                depth: AtomicU64::new(0),
                frame_pointer: AtomicU64::new(0),
                name: AtomicU64::new(0),
                places: [const { AtomicU32::new(0) }; MOST],
                values: [const { AtomicU64::new(0) }; MOST],
            }
        }; IN_SET],
    }
}; SETS];

/// Where a walk begins.
#[derive(Clone, Copy)]
pub(super) struct Beginning {
    at: Registers,
    way: Way,
    /// The innermost instruction, and how the walk begins and goes on there.
    key: u64,
    /// How far it is to where the stack is known to end.
    depth: u64,
    /// How many words can be read.
    readable: u32,
}

impl Beginning {
    /// `None` if the stack is not the calling thread's own.
    #[inline]
    pub(super) fn of(start: Start, way: Way) -> Option<Self> {
        let at = start.registers();
        let stack = at.stack as usize;
        let (low, high) = memory::known_range(stack);
        if stack < low || stack >= high || stack % 8 != 0 {
            return None;
        }
        // Where it ends is part of what is looked for.
        let (end, how) = match start {
            Start::Here(_) => (high, 1),
            Start::Caller(_) => (high, 2),
            Start::Below(_, limit) => (limit, 3),
        };
        Some(Self {
            at,
            way,
            key: at.instruction << 3 | how << 1 | way as u64,
            depth: (end as u64).wrapping_sub(at.stack),
            readable: ((high - stack) / 8).min(WORDS as usize) as u32,
        })
    }

    #[inline]
    fn set(&self) -> &'static Set {
        let mixed = (self.key ^ self.depth.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &WALKS[(mixed >> 56) as usize % SETS]
    }
}

/// A walk that is remembered.
#[derive(Clone, Copy)]
pub(super) struct Remembered {
    entry: &'static Entry,
    turn: u32,
}

/// Looks for a walk from there, and calls `keep` with the number of each return address and what it
/// is, the innermost first. Returns how many it has, too. `None` if there is none, whatever was
/// kept then.
#[inline]
pub(super) fn find(
    from: &Beginning,
    mut keep: impl FnMut(usize, usize),
) -> Option<(Remembered, usize)> {
    from.set().entries.iter().find_map(|entry| {
        let turn = entry.turn.load(Ordering::Acquire);
        if entry.key.load(Ordering::Relaxed) != from.key
            || entry.depth.load(Ordering::Relaxed) != from.depth
            || turn % 2 != 0
        {
            return None;
        }
        let met = Remembered { entry, turn };
        let count = match from.way {
            Way::Tables => met.is_the_same_by_tables(from, &mut keep),
            Way::Chain => met.is_the_same_by_chain(from, &mut keep),
        };
        let count = count?;
        met.is_there().then_some((met, count))
    })
}

impl Remembered {
    /// If all that the walk has looked at is as it was, how many return addresses that were.
    #[inline]
    fn is_the_same_by_tables(
        &self,
        from: &Beginning,
        keep: &mut impl FnMut(usize, usize),
    ) -> Option<usize> {
        let stack = from.at.stack;
        let frame_pointer = self.entry.frame_pointer.load(Ordering::Relaxed);
        if frame_pointer != NO_FRAME_POINTER && frame_pointer != from.at.frame.wrapping_sub(stack) {
            return None;
        }
        let mut count = 0;
        for (place, value) in self.steps() {
            // What is read while somebody writes may be anything.
            if place & WORDS >= from.readable {
                return None;
            }
            let at = stack as usize + (place & WORDS) as usize * 8;
            // SAFETY: within the calling thread's stack, above its stack pointer, aligned.
            let word = unsafe { memory::load(at) };
            if place <= WORDS {
                if word as u64 != value {
                    return None;
                }
                keep(count, word);
                count += 1;
            } else {
                let expected = match place & FRAME_POINTER {
                    0 => value,
                    _ => value.wrapping_add(stack),
                };
                if word as u64 != expected {
                    return None;
                }
            }
        }
        Some(count)
    }

    /// The same of a walk along frame pointers: each place is that of a frame, the value its return
    /// address.
    #[inline]
    fn is_the_same_by_chain(
        &self,
        from: &Beginning,
        keep: &mut impl FnMut(usize, usize),
    ) -> Option<usize> {
        let stack = from.at.stack as usize;
        let mut frame = from.at.frame as usize;
        let mut count = 0;
        for (place, value) in self.steps() {
            if place & FRAME_POINTER != 0 {
                // It leads out of what was looked at.
                return (frame.wrapping_sub(stack) as u64 == value).then_some(count);
            }
            let words = place & WORDS;
            if frame != stack + words as usize * 8 || words + 1 >= from.readable {
                return None;
            }
            // SAFETY: within the calling thread's stack, above its stack pointer, aligned; and so
            // is the word after it.
            let (next, return_address) = unsafe { (memory::load(frame), memory::load(frame + 8)) };
            if return_address as u64 != value {
                return None;
            }
            if place & BEYOND == 0 {
                keep(count, return_address);
                count += 1;
            }
            frame = next;
        }
        Some(count)
    }

    #[inline]
    fn steps(&self) -> impl Iterator<Item = (Place, u64)> {
        let length = (self.entry.length.load(Ordering::Relaxed) as usize).min(MOST);
        (0..length).map(|at| {
            let place = self.entry.places[at].load(Ordering::Relaxed);
            (place, self.entry.values[at].load(Ordering::Relaxed))
        })
    }

    /// Whether nobody has written in the meantime.
    #[inline]
    fn is_there(&self) -> bool {
        fence(Ordering::Acquire);
        self.entry.turn.load(Ordering::Relaxed) == self.turn
    }

    /// What the stack is called, if that was noted.
    #[inline]
    pub(super) fn name(&self) -> Option<StackName> {
        let name = self.entry.name.load(Ordering::Relaxed);
        (name >> 32 == u64::from(self.turn) && name as u32 != 0).then_some(StackName(name as u32))
    }

    /// Notes what the stack is called.
    pub(super) fn set_name(&self, name: StackName) {
        let name = u64::from(self.turn) << 32 | u64::from(name.0);
        self.entry.name.store(name, Ordering::Relaxed);
    }
}

/// Remembers the walk from there, if it can be, and if it is its turn: where walks never come out
/// the same, not each of them is noted.
pub(super) fn remember(from: &Beginning, trail: &Trail) -> Option<Remembered> {
    let set = from.set();
    let missed = set.missed.load(Ordering::Relaxed);
    set.missed.store(missed.wrapping_add(1), Ordering::Relaxed);
    if trail.spoilt || missed % 2 != 0 {
        return None;
    }
    let entry = &set.entries[missed as usize / 2 % IN_SET];
    let turn = entry.turn.load(Ordering::Relaxed);
    if turn % 2 != 0
        || entry
            .turn
            .compare_exchange(turn, turn + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
    {
        return None;
    }
    // Who sees any of what follows sees the turn.
    fence(Ordering::Release);
    entry.key.store(from.key, Ordering::Relaxed);
    entry.depth.store(from.depth, Ordering::Relaxed);
    let frame_pointer = trail.first_frame_pointer.unwrap_or(NO_FRAME_POINTER);
    entry.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    entry.length.store(trail.length as u32, Ordering::Relaxed);
    for at in 0..trail.length {
        entry.places[at].store(trail.places[at], Ordering::Relaxed);
        entry.values[at].store(trail.values[at], Ordering::Relaxed);
    }
    let turn = turn.wrapping_add(2);
    entry.turn.store(turn, Ordering::Release);
    Some(Remembered { entry, turn })
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::super::frame_pointers;
    use super::super::modules::ModuleList;
    use super::super::unwind_tables::{self, Context, End};
    use super::*;

    /// A sanitizer aligns frames in a way that has to be evaluated each time.
    const FRAMES_ARE_PLAIN: bool = !cfg!(plimsoll_sanitized);

    /// A walk from the caller, and whether it was remembered; as remembered and as the tables have
    /// it.
    #[inline(always)]
    fn both(modules: &ModuleList) -> (Option<Vec<usize>>, Vec<usize>) {
        let start = Start::Here(Registers::here());
        walk_both(start, modules)
    }

    #[inline(never)]
    fn walk_both(start: Start, modules: &ModuleList) -> (Option<Vec<usize>>, Vec<usize>) {
        let from = Beginning::of(start, Way::Tables).expect("it is the thread's own stack");
        let mut found = vec![0; 128];
        let met = find(&from, |at, frame| found[at] = frame);
        found.truncate(met.map_or(0, |(_, count)| count));
        let mut frames = [0; 128];
        let mut trail = Trail::new();
        let mut context = Context::new_in();
        let walk = unwind_tables::walk(start, modules, &mut context, &mut trail, &mut frames);
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
            // The same from elsewhere, and as deep.
            black_box(deep(levels - 1, work));
        } else {
            deep(levels - 1, work);
        }
        padding[1]
    }

    /// Ways that are as deep as one another and differ somewhere on the way.
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

    /// Three frames that lead to one another on the calling thread's stack, and out of it.
    struct Chain([usize; 16]);

    /// Where the frames are.
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
            };
            Start::Below(at, base + size_of_val(&self.0))
        }
    }

    /// What the chain is remembered as; and as it is, after which it is remembered.
    #[inline(never)]
    fn both_of_chain(start: Start) -> (Option<Vec<usize>>, Vec<usize>) {
        let from = Beginning::of(start, Way::Chain).expect("it is the thread's own stack");
        let mut found = vec![0; 8];
        let met = find(&from, |at, frame| found[at] = frame);
        found.truncate(met.map_or(0, |(_, count)| count));
        let mut frames = [0; 8];
        let mut trail = Trail::new();
        let walk =
            frame_pointers::walk_noted(start.registers(), start.limit(), &mut frames, &mut trail);
        assert_eq!(walk.end, End::Outermost);
        // Every other one is.
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
        // By tables, it might come out otherwise.
        let by_tables = Beginning::of(start, Way::Tables).unwrap();
        assert!(find(&by_tables, |_, _| ()).is_none());
        // Other words do not matter.
        chain.0[4] = 1;
        let (met, frames) = both_of_chain(start);
        assert_eq!(met, Some(frames));
        let whole = chain.0;
        let base = chain.0.as_ptr() as usize;
        for (at, value) in [
            // Another caller.
            (6, 0x20_001),
            // It ends there.
            (6, 0),
            // It leaves one out.
            (2, base + 8 * 9),
            // It ends before that.
            (5, base + 8 * 16),
            // It leads elsewhere: nowhere, back, or up to where nothing is looked at.
            (9, 0),
            (9, base),
            (9, base + 8 * 17),
            (9, usize::MAX),
        ] {
            black_box(&mut chain).0 = whole;
            chain.0[at] = value;
            let (met, frames) = both_of_chain(start);
            assert_eq!(met, None, "{at} is {value:#x}");
            // What it is now is remembered as well.
            let (met, again) = both_of_chain(start);
            assert_eq!((met.as_ref(), &again), (Some(&frames), &frames));
        }
        black_box(&mut chain).0 = whole;
        // What is no word's address is not read.
        chain.0[2] = base + 8 * 5 + 1;
        black_box(&chain);
        let walk = frame_pointers::walk_noted(
            start.registers(),
            start.limit(),
            &mut [0; 8],
            &mut Trail::new(),
        );
        assert_eq!((walk.frames, walk.end), (1, End::Lost));
    }

    #[test]
    fn a_walk_that_was_done_before_is_remembered_as_it_was() {
        let modules = ModuleList::from_loader();
        let mut remembered = 0;
        for levels in [0, 1, 5, 20] {
            for _ in 0..8 {
                deep(levels, &mut || {
                    let (found, walked) = both(&modules);
                    if let Some(found) = found {
                        assert_eq!(found, walked);
                        remembered += 1;
                    }
                });
            }
        }
        assert!(remembered >= 4 * 4 || !FRAMES_ARE_PLAIN, "{remembered}");
    }

    /// Whatever is remembered of one way is not taken for another that begins and ends as it.
    #[test]
    fn ways_that_differ_in_between_are_told_apart() {
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

    /// Threads walk and remember in the same places all at once.
    #[test]
    fn what_is_half_written_is_not_believed() {
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
    fn a_name_belongs_to_one_walk() {
        let modules = ModuleList::from_loader();
        let mut trail = Trail::new();
        let mut context = Context::new_in();
        let mut frames = [0; 128];
        let start = Start::Here(Registers::here());
        let from = Beginning::of(start, Way::Tables).unwrap();
        unwind_tables::walk(start, &modules, &mut context, &mut trail, &mut frames);
        let met = loop {
            if let Some(met) = remember(&from, &trail) {
                break met;
            }
        };
        assert_eq!(met.name(), None);
        met.set_name(StackName(7));
        let again = find(&from, |_, _| ()).expect("just remembered").0;
        assert_eq!(again.name(), Some(StackName(7)));
        // So often that the place was used again.
        for _ in 0..2 * IN_SET {
            remember(&from, &trail);
        }
        assert_eq!(
            Remembered {
                turn: met.entry.turn.load(Ordering::Relaxed),
                ..met
            }
            .name(),
            None
        );
    }

    #[test]
    fn another_stack_is_none_of_the_threads_own() {
        let words = [0u64; 64];
        let heap = words.to_vec();
        let at = Registers {
            stack: heap.as_ptr() as u64,
            ..Registers::here()
        };
        assert!(Beginning::of(Start::Here(at), Way::Tables).is_none());
        let odd = Registers {
            stack: Registers::here().stack + 1,
            ..at
        };
        assert!(Beginning::of(Start::Here(odd), Way::Tables).is_none());
    }

    #[test]
    fn a_walk_that_is_too_long_is_not_remembered() {
        let modules = ModuleList::from_loader();
        for _ in 0..2 * IN_SET {
            deep(MOST, &mut || {
                let start = Start::Here(Registers::here());
                let from = Beginning::of(start, Way::Tables).unwrap();
                let mut frames = [0; 256];
                let mut trail = Trail::new();
                let mut context = Context::new_in();
                let walk =
                    unwind_tables::walk(start, &modules, &mut context, &mut trail, &mut frames);
                assert_eq!(walk.end, End::Outermost);
                assert!(walk.frames > MOST);
                assert!(remember(&from, &trail).is_none());
                assert!(find(&from, |_, _| ()).is_none());
            });
        }
    }
}
