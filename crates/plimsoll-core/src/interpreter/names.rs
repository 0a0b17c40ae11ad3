//! The names of function frames, by the addresses that stand for them.
//!
//! Tables of fixed size in one reservation, filled by hooks without locks:
//!
//! - *Functions*, by a hash of name, file and first line. A place is claimed by a compare-and-swap of
//!   the hash; the text follows. Its number is known at once, so no thread waits for the text.
//! - *Frames*: a function and a line. The address of a place, plus its size, stands for the frame.
//! - *Text*: appended to, never moved.
//! - A *cache* from the interpreter's own pointers to frames. An entry is one word: 48 bits of the
//!   key's hash, and the frame's number. It may be overwritten at any time.
//!
//! Entries are never removed. When a table is full, further functions remain native frames.

use std::ops::Range;

use plimsoll_interpreter::{Described, Names, Source};
use plimsoll_postmortem::layout::note;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::region::Region;
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use crate::fork::Order;
use plimsoll_ledger::postmortem_file;

const FRAMES: usize = 1 << 16;
const FUNCTIONS: usize = 1 << 14;
const CACHED: usize = 1 << 12;
const TEXT_BYTES: usize = 2 << 20;

/// The words of each table, in their order in the reservation. A function has two words.
const FRAME_WORDS: Range<usize> = 0..FRAMES;
const FUNCTION_WORDS: Range<usize> = FRAMES..FRAMES + 2 * FUNCTIONS;
const CACHE_WORDS: Range<usize> = FUNCTION_WORDS.end..FUNCTION_WORDS.end + CACHED;
const BYTES: usize = 8 * CACHE_WORDS.end + TEXT_BYTES;

/// The maximum number of places that are tried for an entry.
const MAX_PROBES: usize = 64;

/// The bit of an entry that the post-mortem file has, or of any entry if there is no such file.
const NOTED: u64 = 1 << 63;

/// Marks a function for whose text there was no room.
const WITHOUT_TEXT: u64 = 1 << 62;

/// The bit of a frame that distinguishes it from an empty place.
const USED: u64 = 1 << 62;

static REGION: Region = Region::new();

/// The bytes of text in use, or more if it is full.
static TEXT_USED: AtomicUsize = AtomicUsize::new(0);

/// The tables, as a reader of frames uses them. For hooks.
pub struct Interned;

impl Names for Interned {
    #[inline]
    fn cached(&mut self, key: u64) -> Option<usize> {
        cached(key)
    }

    fn intern(&mut self, key: u64, source: Source<'_>, line: u32) -> Option<usize> {
        intern(key, source, line)
    }
}

/// Reserves the tables. Not for hooks. Returns `false` if the system refuses.
pub fn reserve() -> bool {
    static RESERVING: ForkLock<()> = ForkLock::new(Order::InterpretedNames.rank(), ());
    let _alone = RESERVING.lock();
    (REGION.length() != 0 || REGION.reserve(BYTES, BYTES)) && REGION.commit(BYTES)
}

fn words(range: Range<usize>) -> &'static [AtomicU64] {
    let base = REGION.base();
    if base == 0 {
        return &[];
    }
    let start = (base + 8 * range.start) as *const AtomicU64;
    // SAFETY: the reservation is never freed, and has been committed as a whole. `range` is one of the
    // tables, which lie in it. Zero is a valid atomic.
    unsafe { std::slice::from_raw_parts(start, range.len()) }
}

/// Returns the address that stands for a frame, if the cache has the key.
#[inline]
fn cached(key: u64) -> Option<usize> {
    let entry = words(CACHE_WORDS)[cache_place(key)].load(Ordering::Acquire);
    (entry != 0 && entry >> 16 == key >> 16).then(|| address(entry as usize & (FRAMES - 1)))
}

fn cache_place(key: u64) -> usize {
    key as usize & (CACHED - 1)
}

fn address(frame: usize) -> usize {
    REGION.base() + 8 * frame + 8
}

/// Returns the address that stands for a frame, and adds it if it is new. Keeps it in the cache.
fn intern(key: u64, source: Source<'_>, line: u32) -> Option<usize> {
    let (function, function_noted) = function(source)?;
    let (frame, frame_noted) = frame(function, line)?;
    if function_noted && frame_noted {
        let entry = key & !(FRAMES as u64 - 1) | frame as u64;
        words(CACHE_WORDS)[cache_place(key)].store(entry, Ordering::Release);
    }
    Some(address(frame))
}

/// Returns the number of a function, and whether the post-mortem file has it.
fn function(source: Source<'_>) -> Option<(usize, bool)> {
    let table = words(FUNCTION_WORDS);
    let hash = hash(source).max(1);
    for probe in 0..MAX_PROBES {
        let number = (hash as usize >> 7).wrapping_add(probe) % FUNCTIONS;
        let (place, text) = (&table[2 * number], &table[2 * number + 1]);
        match place.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                let position = add_text(source);
                text.store(position.unwrap_or(WITHOUT_TEXT), Ordering::Release);
                position?;
                return Some((number, note_function(number, source, text)));
            }
            Err(other) if other == hash => {
                let known = text.load(Ordering::Relaxed);
                if known & WITHOUT_TEXT != 0 {
                    return None;
                }
                let is_noted = known & NOTED != 0;
                return Some((number, is_noted || note_function(number, source, text)));
            }
            Err(_) => {}
        }
    }
    None
}

/// Returns the number of a frame, and whether the post-mortem file has it.
fn frame(function: usize, line: u32) -> Option<(usize, bool)> {
    let table = words(FRAME_WORDS);
    let entry = USED | (function as u64) << 32 | u64::from(line);
    let mixed = entry.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    for probe in 0..MAX_PROBES {
        let number = (mixed as usize).wrapping_add(probe) % FRAMES;
        let place = &table[number];
        let found = match place.compare_exchange(0, entry, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => entry,
            Err(found) => found,
        };
        if found & !NOTED == entry {
            let is_noted = found & NOTED != 0 || note_frame(number, function, line);
            place.fetch_or(if is_noted { NOTED } else { 0 }, Ordering::AcqRel);
            return Some((number, is_noted));
        }
    }
    None
}

fn hash(source: Source<'_>) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let texts = source.name.bytes().chain([0]).chain(source.file.bytes());
    let hash = texts.fold(0xcbf2_9ce4_8422_2325, mix);
    source.start_line.to_ne_bytes().into_iter().fold(hash, mix)
}

/// The bytes before a text: first line, lengths of name and file.
const TEXT_HEAD: usize = 8;

/// Appends a text. Returns its position, counted from 1.
fn add_text(source: Source<'_>) -> Option<u64> {
    let (name, file) = (source.name.as_bytes(), source.file.as_bytes());
    let length = (TEXT_HEAD + name.len() + file.len()).next_multiple_of(8);
    let at = TEXT_USED.fetch_add(length, Ordering::Relaxed);
    if at.checked_add(length)? > TEXT_BYTES {
        // Below the end of all numbers, however often this happens.
        TEXT_USED.store(TEXT_BYTES, Ordering::Relaxed);
        return None;
    }
    let lengths = (name.len() as u16, file.len() as u16);
    let to = (text_base() + at) as *mut u8;
    // SAFETY: `length` bytes from `at` lie in the reservation, and belong to this call by the addition
    // above. They become visible by the store of the position.
    unsafe {
        to.cast::<u32>().write(source.start_line);
        to.add(4).cast::<(u16, u16)>().write(lengths);
        let to = to.add(TEXT_HEAD);
        to.copy_from_nonoverlapping(name.as_ptr(), name.len());
        to.add(name.len())
            .copy_from_nonoverlapping(file.as_ptr(), file.len());
    }
    Some(at as u64 + 1)
}

fn text_base() -> usize {
    REGION.base() + 8 * CACHE_WORDS.end
}

/// Adds a function to the post-mortem file, if there is one. Returns `false` if another thread writes
/// to the file, so that this must be repeated.
fn note_function(number: usize, source: Source<'_>, text: &AtomicU64) -> bool {
    let parts = [
        &(number as u32).to_ne_bytes()[..],
        &source.start_line.to_ne_bytes(),
        &(source.name.len() as u32).to_ne_bytes(),
        source.name.as_bytes(),
        source.file.as_bytes(),
    ];
    let is_noted = postmortem_file::try_note(note::FUNCTION, &parts);
    text.fetch_or(if is_noted { NOTED } else { 0 }, Ordering::AcqRel);
    is_noted
}

/// Does the same for a frame.
fn note_frame(number: usize, function: usize, line: u32) -> bool {
    let parts = [
        &(address(number) as u64).to_ne_bytes()[..],
        &(function as u32).to_ne_bytes(),
        &line.to_ne_bytes(),
    ];
    postmortem_file::try_note(note::FRAME, &parts)
}

/// Calls `use_description` with the frame for which an address stands, if it does.
pub fn describe<R>(address: usize, use_description: impl FnOnce(Described<'_>) -> R) -> Option<R> {
    let base = REGION.base();
    let number = address.checked_sub(base + 8).filter(|_| base != 0)? / 8;
    let frame = words(FRAME_WORDS).get(number)?.load(Ordering::Acquire);
    if frame & USED == 0 {
        return None;
    }
    let function = (frame & !(USED | NOTED)) >> 32;
    let at = words(FUNCTION_WORDS)[2 * function as usize + 1].load(Ordering::Acquire);
    // 0 if a thread lost its processor before it has stored the position.
    let at = (at & !(NOTED | WITHOUT_TEXT)).checked_sub(1)? as usize;
    let from = (text_base() + at) as *const u8;
    // SAFETY: the position was stored after the text was written, which never changes afterwards.
    let (start_line, name, file) = unsafe {
        let start_line = from.cast::<u32>().read();
        let (name, file) = from.add(4).cast::<(u16, u16)>().read();
        let (name, file) = (usize::from(name), usize::from(file));
        let from = from.add(TEXT_HEAD);
        (
            start_line,
            std::slice::from_raw_parts(from, name),
            std::slice::from_raw_parts(from.add(name), file),
        )
    };
    Some(use_description(Described {
        name: std::str::from_utf8(name).unwrap_or("?"),
        file: std::str::from_utf8(file).unwrap_or("?"),
        start_line,
        line: frame as u32,
    }))
}

/// Reserves the tables beside other tests that do.
#[cfg(test)]
pub fn reserve_alone() {
    while !reserve() {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str) -> Source<'_> {
        Source {
            name,
            file: "/srv/app.py",
            start_line: 7,
        }
    }

    #[test]
    fn frames_are_equal_exactly_if_function_and_line_are() {
        reserve_alone();
        let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = |number, name: &str, line| intern(key(number), source(name), line).unwrap();
        let first = at(1, "work", 8);
        assert_eq!(at(2, "work", 8), first, "by another key");
        assert_ne!(at(3, "work", 9), first);
        assert_ne!(at(4, "walk", 8), first);
        assert_eq!(cached(key(1)), Some(first));
        assert_eq!(cached(key(99)), None);
        let described = describe(first, |found| {
            assert_eq!(found.name, "work");
            assert_eq!(found.file, "/srv/app.py");
            (found.start_line, found.line)
        });
        assert_eq!(described, Some((7, 8)));
        for other in [0, 1, first - 1, first + 8 * FRAMES, usize::MAX] {
            let found = describe(other, |found| found.line);
            assert!(found.is_none() || other == first - 1, "{other:#x}");
        }
    }

    #[test]
    fn threads_that_meet_the_same_functions_get_the_same_frames() {
        reserve_alone();
        let frames: Vec<Vec<usize>> = std::thread::scope(|scope| {
            let thread = || {
                let names = (0..2000).map(|at| format!("racing {at}"));
                names
                    .enumerate()
                    .map(|(at, name)| intern(u64::MAX - at as u64, source(&name), 1).unwrap())
                    .collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(thread)).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.collect()
        });
        for of_thread in &frames {
            assert_eq!(of_thread, &frames[0]);
        }
        for (at, &frame) in frames[0].iter().enumerate() {
            let name = describe(frame, |found| found.name.to_owned());
            assert_eq!(name, Some(format!("racing {at}")));
        }
    }
}
