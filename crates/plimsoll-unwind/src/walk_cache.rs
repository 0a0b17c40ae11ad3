//! A cache of walks, with a check that a repeated walk would have the same result.
//!
//! A program reaches the same place by the same calls over and over. In a walk by tables, the
//! position of each return address depends only on the return addresses before it. Where functions
//! find their frames by frame pointers, it also depends on these. Suppose that all words that a
//! walk has read are unchanged, at the same distances from the stack pointer. Then a new walk would
//! read the same words and return the same frames. The check takes a load and a comparison for each
//! word, and needs neither rules nor the list of modules.
//!
//! This holds for plain frames, in code that is never unloaded. Any other frame spoils the walk's
//! [`Trail`], and the walk is not stored.
//!
//! A walk along frame pointers depends only on the frames of its chain. It is stored for the name
//! of the stack, which would require a search otherwise.
//!
//! The innermost instruction and the depth of the stack select an entry. Readers take no locks: a
//! read that overlaps a write is discarded. A second concurrent writer skips its write.

use std::hint::black_box;

use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering, fence};

use crate::arch;
use crate::cache_counts::{Answer, count_walk};
use crate::registers::{Registers, Start};
use plimsoll_process::stack_memory as memory;

/// The name that the user of the cache assigned to a stack; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackName(pub u32);

/// The most words that a stored walk may have read.
pub const MAX_WORDS: usize = 96;

/// The number of sets, a power of two.
const SETS: usize = 128;

/// The number of walks that a set holds.
pub const IN_SET: usize = 4;

/// The position of a word, in words above the stack pointer, with flags for its kind.
type Place = u32;

/// The word is a frame pointer: its distance from the stack pointer is compared.
const FRAME_POINTER: Place = 1 << 31;
/// The word ended the walk, and is not part of the stack.
const BEYOND: Place = 1 << 30;
const WORDS: Place = BEYOND - 1;

/// The stored distance of a frame pointer that is not compared.
const NO_FRAME_POINTER: u64 = u64::MAX;

/// The method by which a walk finds frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkMethod {
    /// By unwind tables: by return addresses, and by frame pointers where functions keep them.
    Tables = 0,
    /// Along the chain of frame pointers. Each place is a frame's.
    Chain = 1,
}

/// The words that a walk has read.
pub struct Trail {
    stack: u64,
    /// The origin of the walker's current frame pointer, unless the trail contains it already.
    frame_pointer: From,
    /// The distance of the first frame pointer from the stack pointer, if the walk depends on it.
    first_frame_pointer: Option<u64>,
    length: usize,
    spoilt: bool,
    /// The last address of code that the module list lacks.
    unknown_code: Option<usize>,
    places: [Place; MAX_WORDS],
    values: [u64; MAX_WORDS],
}

#[derive(Clone, Copy)]
enum From {
    Noted,
    /// The value of the register.
    Register(u64),
    /// The address from which it was read, and the value.
    Saved(u64, u64),
}

impl Default for Trail {
    fn default() -> Self {
        Self::new()
    }
}

impl Trail {
    /// Creates an empty trail.
    pub const fn new() -> Self {
        Self {
            stack: 0,
            frame_pointer: From::Noted,
            first_frame_pointer: None,
            length: 0,
            spoilt: true,
            unknown_code: None,
            places: [0; MAX_WORDS],
            values: [0; MAX_WORDS],
        }
    }

    pub(crate) fn begin(&mut self, at: Registers) {
        self.stack = at.stack;
        self.frame_pointer = From::Register(at.frame);
        self.first_frame_pointer = None;
        self.length = 0;
        self.spoilt = false;
        self.unknown_code = None;
    }

    /// Records that the walk met a frame that is not plain, or code that may be unloaded.
    pub(crate) fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Records that the module list lacks the code at an address. Spoils the trail.
    pub(crate) fn met_unknown_code(&mut self, address: usize) {
        self.spoilt = true;
        self.unknown_code = Some(address);
    }

    /// Returns the address of code that the walk met and its module list lacks. The list must then
    /// be replaced.
    pub fn unknown_code(&self) -> Option<usize> {
        self.unknown_code
    }

    /// Records that the frame pointer determined a frame.
    pub(crate) fn used_frame_pointer(&mut self) {
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

    /// Records that the frame pointer was read at an address.
    pub(crate) fn read_frame_pointer(&mut self, at: u64, value: u64) {
        self.frame_pointer = From::Saved(at, value);
    }

    /// Records that the next return address was read at an address.
    pub(crate) fn read_return_address(&mut self, at: u64, value: u64) {
        self.note(at, 0, value);
    }

    /// Records that the next frame of the chain is at an address.
    pub(crate) fn read_frame(&mut self, at: u64, return_address: u64) {
        self.note(at, 0, return_address);
    }

    /// Records that the chain leads to an address that the walk does not read.
    pub(crate) fn chain_leads_to(&mut self, at: u64) {
        self.note(self.stack, FRAME_POINTER, at.wrapping_sub(self.stack));
    }

    /// Marks the last word as the end of the stack rather than a return address.
    pub(crate) fn ended_there(&mut self) {
        if let Some(last) = self.length.checked_sub(1) {
            self.places[last] |= BEYOND;
        }
    }

    /// Removes the last word, which belongs to a frame beyond the limit.
    pub(crate) fn ended_before(&mut self) {
        self.length = self.length.saturating_sub(1);
    }

    fn note(&mut self, at: u64, what: Place, value: u64) {
        let distance = at.wrapping_sub(self.stack);
        let words = distance / 8;
        if self.length == MAX_WORDS || words > u64::from(WORDS) || distance % 8 != 0 {
            self.spoilt = true;
            return;
        }
        self.places[self.length] = words as Place | what;
        self.values[self.length] = value;
        self.length += 1;
    }
}

/// The key of a stored walk. Keys lie apart from the words: a search that finds nothing then touches one
/// page, where few are in memory after a start or a fork.
struct Key {
    /// A version number; odd during a write.
    turn: AtomicU32,
    start: AtomicU64,
    depth: AtomicU64,
}

/// A stored walk.
struct Entry {
    length: AtomicU32,
    /// For a walk by tables, the distance of the first frame pointer from the stack pointer.
    frame_pointer: AtomicU64,
    /// The stack's name in the lower half, if known, and the turn to which it belongs in the upper
    /// half.
    name: AtomicU64,
    places: [AtomicU32; MAX_WORDS],
    values: [AtomicU64; MAX_WORDS],
}

struct Set {
    /// The number of calls of `remember` for this set.
    missed: AtomicU32,
    keys: [Key; IN_SET],
}

static KEYS: [Set; SETS] = [const {
    Set {
        missed: AtomicU32::new(0),
        keys: [const {
            Key {
                turn: AtomicU32::new(0),
                start: AtomicU64::new(0),
                depth: AtomicU64::new(0),
            }
        }; IN_SET],
    }
}; SETS];

/// The walks of each key.
static WALKS: [[Entry; IN_SET]; SETS] = [const {
    [const {
        Entry {
            length: AtomicU32::new(0),
            frame_pointer: AtomicU64::new(0),
            name: AtomicU64::new(0),
            places: [const { AtomicU32::new(0) }; MAX_WORDS],
            values: [const { AtomicU64::new(0) }; MAX_WORDS],
        }
    }; IN_SET]
}; SETS];

/// The key of a walk: its starting point.
#[derive(Clone, Copy)]
pub struct Beginning {
    at: Registers,
    way: WalkMethod,
    /// The innermost instruction, the kind of start, and the method.
    key: u64,
    /// The distance from the stack pointer to the known end of the stack.
    depth: u64,
    /// The number of readable words above the stack pointer.
    readable: u32,
}

impl Beginning {
    /// Returns the key; `None` if the stack is not the calling thread's own.
    #[inline]
    pub fn new(start: Start, way: WalkMethod) -> Option<Self> {
        let at = start.registers();
        let stack = at.stack as usize;
        let (low, high) = memory::known_range(stack);
        if stack < low || stack >= high || stack % 8 != 0 {
            return None;
        }
        // The end of the stack is part of the key.
        let (end, how) = match start {
            Start::Here(_) => (high, 1),
            Start::Caller(_) => (high, 2),
            Start::Limited(_, limit) => (limit, 3),
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
    fn set(&self) -> usize {
        let mixed = (self.key ^ self.depth.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 56) as usize % SETS
    }
}

/// Reads a word of each page of keys. A page that was never used has a page fault at the first search,
/// and the children of later forks inherit that it is done.
pub fn prepare() {
    let one_per_page = KEYS.iter().step_by(PAGE / size_of::<Set>());
    for set in one_per_page.chain(KEYS.last()) {
        black_box(set.missed.load(Ordering::Relaxed));
    }
}

/// A reference to a stored walk.
#[derive(Clone, Copy)]
pub struct Remembered {
    key: &'static Key,
    entry: &'static Entry,
    turn: u32,
}

/// Searches for a stored walk from `from`. Calls `keep` with the index and the value of each return
/// address, innermost first. Returns the walk and the number of its return addresses. If the result
/// is `None`, the caller must discard everything that `keep` received.
#[inline]
pub fn find(from: &Beginning, mut keep: impl FnMut(usize, usize)) -> Option<(Remembered, usize)> {
    let set = from.set();
    let mut answer = Answer::Missing;
    let found = KEYS[set].keys.iter().enumerate().find_map(|(at, key)| {
        let turn = key.turn.load(Ordering::Acquire);
        if key.start.load(Ordering::Relaxed) != from.key
            || key.depth.load(Ordering::Relaxed) != from.depth
            || turn % 2 != 0
        {
            return None;
        }
        let entry = &WALKS[set][at];
        let met = Remembered { key, entry, turn };
        let count = match from.way {
            WalkMethod::Tables => met.is_the_same_by_tables(from, &mut keep),
            WalkMethod::Chain => met.is_the_same_by_chain(from, &mut keep),
        };
        answer = Answer::Changed;
        let count = count?;
        met.is_there().then_some((met, count))
    });
    count_walk(found.map_or(answer, |_| Answer::Found));
    found
}

impl Remembered {
    /// Returns the number of return addresses if all words that the walk has read are unchanged.
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
            // A read that overlaps a write may return any value.
            if place & WORDS >= from.readable {
                return None;
            }
            let at = stack as usize + (place & WORDS) as usize * 8;
            // SAFETY: `at` is aligned, and lies below the end of the calling thread's stack by the
            // check above, and above its stack pointer.
            let word = unsafe { memory::load(at) };
            if place <= WORDS {
                if word as u64 != value {
                    return None;
                }
                keep(count, arch::strip(word));
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

    /// Checks a walk along frame pointers in the same way. Each place is a frame's, and the value
    /// is its return address.
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
                // The chain leads to an address that the walk did not read.
                return (frame.wrapping_sub(stack) as u64 == value).then_some(count);
            }
            let words = place & WORDS;
            if frame != stack + words as usize * 8 || words + 1 >= from.readable {
                return None;
            }
            // SAFETY: both words are aligned, and lie below the end of the calling thread's stack
            // by the check above, and above its stack pointer.
            let (next, return_address) = unsafe { (memory::load(frame), memory::load(frame + 8)) };
            if return_address as u64 != value {
                return None;
            }
            if place & BEYOND == 0 {
                keep(count, arch::strip(return_address));
                count += 1;
            }
            frame = next;
        }
        Some(count)
    }

    #[inline]
    fn steps(&self) -> impl Iterator<Item = (Place, u64)> {
        let length = (self.entry.length.load(Ordering::Relaxed) as usize).min(MAX_WORDS);
        (0..length).map(|at| {
            let place = self.entry.places[at].load(Ordering::Relaxed);
            (place, self.entry.values[at].load(Ordering::Relaxed))
        })
    }

    /// Returns whether the entry was not overwritten since it was found.
    #[inline]
    fn is_there(&self) -> bool {
        fence(Ordering::Acquire);
        self.key.turn.load(Ordering::Relaxed) == self.turn
    }

    /// Returns the stack's name, if it was set.
    #[inline]
    pub fn name(&self) -> Option<StackName> {
        let name = self.entry.name.load(Ordering::Relaxed);
        (name >> 32 == u64::from(self.turn) && name as u32 != 0).then_some(StackName(name as u32))
    }

    /// Sets the stack's name.
    pub fn set_name(&self, name: StackName) {
        let name = u64::from(self.turn) << 32 | u64::from(name.0);
        self.entry.name.store(name, Ordering::Relaxed);
    }
}

/// Stores a walk, unless its trail is spoilt or another thread writes the same entry. Only every
/// second call for a set stores a walk: where walks never repeat, storing each one is wasted.
pub fn remember(from: &Beginning, trail: &Trail) -> Option<Remembered> {
    let set = from.set();
    let Set {
        missed: count,
        keys,
    } = &KEYS[set];
    let missed = count.load(Ordering::Relaxed);
    count.store(missed.wrapping_add(1), Ordering::Relaxed);
    if trail.spoilt || missed % 2 != 0 {
        return None;
    }
    let at = missed as usize / 2 % IN_SET;
    let (key, entry) = (&keys[at], &WALKS[set][at]);
    let turn = key.turn.load(Ordering::Relaxed);
    if turn % 2 != 0
        || key
            .turn
            .compare_exchange(turn, turn + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
    {
        return None;
    }
    // Orders the odd turn before the stores below: a reader that sees one of them sees the turn.
    fence(Ordering::Release);
    key.start.store(from.key, Ordering::Relaxed);
    key.depth.store(from.depth, Ordering::Relaxed);
    let frame_pointer = trail.first_frame_pointer.unwrap_or(NO_FRAME_POINTER);
    entry.frame_pointer.store(frame_pointer, Ordering::Relaxed);
    entry.length.store(trail.length as u32, Ordering::Relaxed);
    for at in 0..trail.length {
        entry.places[at].store(trail.places[at], Ordering::Relaxed);
        entry.values[at].store(trail.values[at], Ordering::Relaxed);
    }
    let turn = turn.wrapping_add(2);
    key.turn.store(turn, Ordering::Release);
    Some(Remembered { key, entry, turn })
}

#[cfg(test)]
mod tests;
