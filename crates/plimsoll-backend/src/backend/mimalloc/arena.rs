//! Arenas for mimalloc that report the use of their memory.
//!
//! mimalloc can manage memory that the program supplies, with a callback that it calls before it
//! uses a part and when it returns one. The callback is meant for memory that must be made
//! accessible. Here all of it is accessible; the callback counts, and returns pages to the system.
//! mimalloc counts in slices of 64 KiB, but calls it for ranges that are partly in use, or not in
//! use. So the arena has a bit for each page.
//!
//! mimalloc searches its arenas in the order of their registration, and creates one if none has
//! space. Plimsoll's first arena exists before the first block. When three quarters of the arenas
//! are in use, the thread whose commit callback sees it makes the next one: mimalloc holds no lock
//! then, and adds an arena to its list with one atomic addition.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use plimsoll_sys::os::region::{self, PAGE};
use plimsoll_sys::primitives::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use super::Usage;
use super::ffi::{self, Statistics};

/// The first arena's size in bytes; later ones are twice as large. By mimalloc's rules, the tables
/// of an arena twice as large again would not fit into it.
const FIRST: usize = 4 << 30;

/// The alignment that mimalloc requires of an arena.
const SLICE: usize = 64 << 10;

/// No thread has started to make an arena.
const NEW: u32 = 0;
/// A thread is making an arena.
const MAKING: u32 = 1;
/// Plimsoll's arenas exist, and the figures are valid.
const OPEN: u32 = 2;
/// mimalloc uses none of Plimsoll's arenas.
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NEW);

/// The number of Plimsoll's arenas.
static ARENAS: AtomicUsize = AtomicUsize::new(0);

/// The maximum number of Plimsoll's arenas: 2 TiB in total.
const MAX_ARENAS: usize = 256;

/// The addresses of their notes. The last one may be missing for a moment.
static NOTES: [AtomicPtr<Note>; MAX_ARENAS] = [const { AtomicPtr::new(null_mut()) }; MAX_ARENAS];

/// Bytes of address space of the arenas, of the part in use, and of their tables in that part.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
static COMMITTED: AtomicUsize = AtomicUsize::new(0);
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that mimalloc had mapped itself before the first of Plimsoll's arenas.
static BYTES_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread is making another arena, or no more can be made.
static IS_GROWING: AtomicBool = AtomicBool::new(false);

/// An arena's header, in front of it: the pages in use. A fresh mapping is a header with no page in
/// use.
#[repr(C)]
struct Note {
    /// The address of the first page.
    start: usize,
    pages: usize,
    /// Bytes of mimalloc's tables, at the beginning of the arena.
    tables: AtomicUsize,
    /// A bit for each page follows here.
    in_use: [AtomicU64; 0],
}

/// The memory that mimalloc has from the system, in bytes.
pub(super) struct Bytes {
    pub(super) reserved: usize,
    pub(super) committed: usize,
    pub(super) metadata: usize,
    /// Whether mimalloc has created no arena itself.
    pub(super) all_are_ours: bool,
}

pub(super) fn bytes() -> Option<Bytes> {
    if !is_open() {
        return None;
    }
    // An arena that Plimsoll makes meanwhile may be taken for mimalloc's, but not the other way
    // around.
    let arenas = ARENAS.load(Ordering::Acquire);
    let statistics = Statistics::read()?;
    let before = BYTES_BEFORE.load(Ordering::Relaxed);
    let by_itself = usize::try_from(statistics.reserved.current).unwrap_or(0);
    let by_itself = by_itself.saturating_sub(before);
    let tables = TABLES.load(Ordering::Relaxed);
    let committed = COMMITTED.load(Ordering::Relaxed);
    let reserved = RESERVED.load(Ordering::Relaxed);
    Some(Bytes {
        reserved: (reserved - tables) + by_itself,
        committed: committed.saturating_sub(tables) + by_itself,
        metadata: tables + before,
        all_are_ours: usize::try_from(statistics.arenas).is_ok_and(|all| all <= arenas),
    })
}

/// Registers the first arena with mimalloc, unless one exists.
pub(super) fn open() {
    let began = STATE.compare_exchange(NEW, MAKING, Ordering::AcqRel, Ordering::Relaxed);
    if began.is_err() {
        return;
    }
    let opened = is_as_by_default() && note_what_was_before().is_some() && make();
    STATE.store(if opened { OPEN } else { CLOSED }, Ordering::Release);
}

/// Returns whether Plimsoll's arenas change nothing in this mimalloc and its configuration.
fn is_as_by_default() -> bool {
    // SAFETY: callable at any time outside the allocator; the numbers of options belong to the
    // version that was checked first.
    unsafe {
        if ffi::mi_version() / 100 != 303 {
            return false;
        }
        ffi::mi_process_init();
        ffi::mi_option_get(ffi::PURGE_DECOMMITS) != 0
            && [
                ffi::ALLOW_LARGE_OS_PAGES,
                ffi::DISALLOW_ARENA_ALLOC,
                ffi::PAGE_COMMIT_ON_DEMAND,
            ]
            .into_iter()
            .all(|option| ffi::mi_option_get(option) == 0)
    }
}

/// Returns whether mimalloc would ask for huge pages in an arena that it makes itself.
fn are_huge_pages_wanted() -> bool {
    // SAFETY: the numbers of options belong to the version that was checked before.
    unsafe {
        ffi::mi_option_get(ffi::ALLOW_THP) != 0 && ffi::mi_option_get(ffi::ARENA_EAGER_COMMIT) != 0
    }
}

/// Notes the bytes that mimalloc has mapped. `None` if mimalloc has already created arenas: no
/// callback reports their use.
fn note_what_was_before() -> Option<()> {
    let statistics = Statistics::read()?;
    if statistics.arenas > 0 {
        return None;
    }
    let bytes = usize::try_from(statistics.reserved.current).ok()?;
    BYTES_BEFORE.store(bytes, Ordering::Relaxed);
    Some(())
}

/// Makes an arena. Only one thread at a time calls this.
fn make() -> bool {
    let made_before = ARENAS.load(Ordering::Relaxed);
    let size = if made_before == 0 { FIRST } else { 2 * FIRST };
    if made_before == MAX_ARENAS {
        return false;
    }
    let pages = size / PAGE;
    let note_bytes = (size_of::<Note>() + pages / 8).next_multiple_of(SLICE);
    // Includes the space for the alignment.
    let length = size + note_bytes + SLICE;
    if region::within_address_space_limit(length) < length {
        return false;
    }
    let Some(mapping) = region::map(length) else {
        return false;
    };
    let note = mapping.next_multiple_of(SLICE) as *mut Note;
    let start = note as usize + note_bytes;
    if are_huge_pages_wanted() {
        region::allow_huge(start, size);
    }
    // Counted before mimalloc can use a part of it.
    RESERVED.fetch_add(size, Ordering::Relaxed);
    ARENAS.fetch_add(1, Ordering::AcqRel);
    let mut arena = null_mut();
    // SAFETY: the mapping is fresh, zero and not shared; the note lies at its beginning and lasts
    // as long as the mapping. The callback meets its contract.
    let managed = unsafe {
        (*note).start = start;
        (*note).pages = pages;
        ffi::mi_manage_memory(
            start as *mut c_void,
            size,
            false,
            false,
            true,
            -1,
            false,
            commit,
            note.cast(),
            &raw mut arena,
        )
    };
    if !managed {
        // SAFETY: mimalloc has not taken the mapping, and no other thread knows of it.
        unsafe {
            let tables = (*note).tables.load(Ordering::Relaxed);
            COMMITTED.fetch_sub(tables, Ordering::Relaxed);
            TABLES.fetch_sub(tables, Ordering::Relaxed);
            region::unmap(mapping, length);
        }
        ARENAS.fetch_sub(1, Ordering::AcqRel);
        RESERVED.fetch_sub(size, Ordering::Relaxed);
    } else {
        NOTES[made_before].store(note, Ordering::Release);
    }
    managed
}

/// Returns whether mimalloc uses Plimsoll's arenas.
pub(super) fn is_open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Visits the arenas: headers and tables, and the memory for blocks.
pub(super) fn visit_memory(visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
    if !is_open() {
        return false;
    }
    for place in &NOTES {
        let note = place.load(Ordering::Acquire);
        // SAFETY: a note in the table is never unmapped.
        if let Some(noted) = unsafe { note.as_ref() } {
            let blocks = noted.start + noted.tables.load(Ordering::Relaxed);
            visit(Usage::Structures, note as usize..blocks);
            visit(Usage::Blocks, blocks..noted.start + noted.pages * PAGE);
        }
    }
    true
}

/// Called by mimalloc before it uses a range of an arena (`true`), and to return one to the system
/// (`false`). mimalloc owns the range meanwhile. In the latter case, the result is whether mimalloc
/// must call this before it uses the range again.
unsafe extern "C" fn commit(
    is_used: bool,
    address: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    note: *mut c_void,
) -> bool {
    // SAFETY: `make` passed this address, and the note is never unmapped.
    let note = unsafe { &*note.cast::<Note>() };
    let address = address as usize;
    if !is_used {
        // SAFETY: mimalloc no longer needs the contents of these pages.
        let is_returned = unsafe { region::discard(address, size) };
        if is_returned {
            COMMITTED.fetch_sub(note.mark(address, size, false) * PAGE, Ordering::Relaxed);
        }
        return is_returned;
    }
    if !is_zero.is_null() {
        // SAFETY: mimalloc passes the address of its variable. Parts may have been used before.
        unsafe { *is_zero = false };
    }
    let fresh = note.mark(address, size, true) * PAGE;
    let committed = COMMITTED.fetch_add(fresh, Ordering::Relaxed) + fresh;
    if address == note.start && note.tables.load(Ordering::Relaxed) == 0 {
        note.tables.store(fresh, Ordering::Relaxed);
        TABLES.fetch_add(fresh, Ordering::Relaxed);
    }
    let most = RESERVED.load(Ordering::Relaxed) / 4 * 3;
    if committed > most
        && STATE.load(Ordering::Relaxed) == OPEN
        && !IS_GROWING.swap(true, Ordering::Acquire)
        && make()
    {
        IS_GROWING.store(false, Ordering::Release);
    }
    true
}

impl Note {
    /// Marks the pages of a range as in use or not. Returns how many changed.
    fn mark(&self, address: usize, size: usize, in_use: bool) -> usize {
        let first = (address - self.start) / PAGE;
        let end = (address + size - self.start).div_ceil(PAGE).min(self.pages);
        let (mut page, mut changed) = (first, 0);
        while page < end {
            let bit = page % 64;
            let bits = (end - page).min(64 - bit);
            let mask = (u64::MAX >> (64 - bits)) << bit;
            // SAFETY: the note is followed by a word for each 64 pages, in its mapping.
            let word = unsafe { &*self.in_use.as_ptr().add(page / 64) };
            let before = if in_use {
                word.fetch_or(mask, Ordering::Relaxed)
            } else {
                !word.fetch_and(!mask, Ordering::Relaxed)
            };
            changed += (mask & !before).count_ones() as usize;
            page += bits;
        }
        changed
    }
}
