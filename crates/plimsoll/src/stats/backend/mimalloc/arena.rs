//! Arenas for mimalloc that say what is used of them.
//!
//! mimalloc can be given memory to manage, and a function that it calls before it uses a part and
//! when it gives one back. It is meant for memory that has to be made accessible; here all of it
//! is, and the function counts, and does the giving back. mimalloc counts in slices of 64 KiB, but
//! calls it for ranges in which some are in use already, or none: so there is a bit for each page.
//!
//! mimalloc looks into its arenas in the order in which it was given them, and makes one itself if
//! there is no room. The first of ours is there before the first block. When three quarters of what
//! there is are in use, the next one is made by the thread that is being told so: mimalloc is in no
//! lock then, and arenas are added to its list with one atomic addition.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use super::Held;
use super::ffi::{self, Statistics};
use crate::os::region::{self, PAGE};
use crate::os::syscall::call3;
use crate::primitives::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The first arena's size in bytes; those that follow have twice as much. The tables of one twice
/// as large again do not fit into it, by mimalloc's rules.
const FIRST: usize = 4 << 30;

/// What mimalloc wants an arena to be aligned to.
const SLICE: usize = 64 << 10;

/// Nobody has begun.
const NEW: u32 = 0;
/// Somebody makes an arena.
const MAKING: u32 = 1;
/// There is one, and what is told is right.
const OPEN: u32 = 2;
/// mimalloc has none of ours.
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NEW);

/// How many arenas there are of ours.
static ARENAS: AtomicUsize = AtomicUsize::new(0);

/// As many of ours as there can be: they come to 2 TiB.
const MOST: usize = 256;

/// The addresses of their notes. Of those that there are, the last may be missing for a moment.
static NOTES: [AtomicPtr<Note>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];

/// Bytes of their address space, of what is in use of it, and of that, their tables.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
static COMMITTED: AtomicUsize = AtomicUsize::new(0);
static TABLES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that mimalloc had by itself before it had the first of ours.
static BYTES_BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Whether somebody makes another arena, or there can be none.
static IS_GROWING: AtomicBool = AtomicBool::new(false);

/// An arena's note of itself, in front of it: which pages are in use. A fresh mapping is one of
/// which none is.
#[repr(C)]
struct Note {
    /// The address of the first page.
    start: usize,
    pages: usize,
    /// Bytes of mimalloc's tables, which are at the beginning.
    tables: AtomicUsize,
    /// A bit for each page follows.
    in_use: [AtomicU64; 0],
}

/// What mimalloc has from the system, in bytes.
pub(super) struct Bytes {
    pub(super) reserved: usize,
    pub(super) committed: usize,
    pub(super) metadata: usize,
    /// Whether mimalloc has made no arena by itself.
    pub(super) all_are_ours: bool,
}

pub(super) fn bytes() -> Option<Bytes> {
    if !is_open() {
        return None;
    }
    // One of ours that is made meanwhile is taken for mimalloc's, and not the other way around.
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

/// Gives mimalloc the first arena, if it has none.
pub(super) fn open() {
    let began = STATE.compare_exchange(NEW, MAKING, Ordering::AcqRel, Ordering::Relaxed);
    if began.is_err() {
        return;
    }
    let opened = is_as_by_default() && note_what_was_before().is_some() && make();
    STATE.store(if opened { OPEN } else { CLOSED }, Ordering::Release);
}

/// Whether this is a mimalloc that arenas of ours change nothing in.
fn is_as_by_default() -> bool {
    // SAFETY: callable at any time outside of the allocator; the numbers of options are those of
    // the version that was asked for before.
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

/// `None` if mimalloc has made arenas already: nobody tells what it uses of those.
fn note_what_was_before() -> Option<()> {
    let statistics = Statistics::read()?;
    if statistics.arenas > 0 {
        return None;
    }
    let bytes = usize::try_from(statistics.reserved.current).ok()?;
    BYTES_BEFORE.store(bytes, Ordering::Relaxed);
    Some(())
}

/// Makes an arena. By one thread at a time.
fn make() -> bool {
    let made_before = ARENAS.load(Ordering::Relaxed);
    let size = if made_before == 0 { FIRST } else { 2 * FIRST };
    if made_before == MOST {
        return false;
    }
    let pages = size / PAGE;
    let note_bytes = (size_of::<Note>() + pages / 8).next_multiple_of(SLICE);
    // With room for the alignment.
    let length = size + note_bytes + SLICE;
    if region::within_address_space_limit(length) < length {
        return false;
    }
    let Some(mapping) = region::map(length, 0, libc::PROT_READ | libc::PROT_WRITE) else {
        return false;
    };
    let note = mapping.next_multiple_of(SLICE) as *mut Note;
    let start = note as usize + note_bytes;
    // Counted before mimalloc can have something of it.
    RESERVED.fetch_add(size, Ordering::Relaxed);
    ARENAS.fetch_add(1, Ordering::AcqRel);
    let mut arena = null_mut();
    // SAFETY: the mapping is fresh, zero, and given to nobody else; the note is at its beginning,
    // and lasts as long as it does. The function keeps to its contract.
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
        // SAFETY: mimalloc has not taken it; nobody else knows of it.
        unsafe {
            let tables = (*note).tables.load(Ordering::Relaxed);
            COMMITTED.fetch_sub(tables, Ordering::Relaxed);
            TABLES.fetch_sub(tables, Ordering::Relaxed);
            call3(libc::SYS_munmap, mapping, length, 0);
        }
        ARENAS.fetch_sub(1, Ordering::AcqRel);
        RESERVED.fetch_sub(size, Ordering::Relaxed);
    } else {
        NOTES[made_before].store(note, Ordering::Release);
    }
    managed
}

/// Whether mimalloc has arenas of ours.
pub(super) fn is_open() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Visits the arenas: notes and tables, and what is for blocks.
pub(super) fn visit_memory(visit: &mut dyn FnMut(Held, Range<usize>)) -> bool {
    if !is_open() {
        return false;
    }
    for place in &NOTES {
        let note = place.load(Ordering::Acquire);
        // SAFETY: one that is noted is there for good.
        if let Some(noted) = unsafe { note.as_ref() } {
            let blocks = noted.start + noted.tables.load(Ordering::Relaxed);
            visit(Held::Structures, note as usize..blocks);
            visit(Held::Blocks, blocks..noted.start + noted.pages * PAGE);
        }
    }
    true
}

/// Called by mimalloc before it uses a range of an arena (`true`), and to give one back. It owns
/// the range meanwhile. What it returns for the latter is whether this has to be called before the
/// range is used again.
unsafe extern "C" fn commit(
    is_used: bool,
    address: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    note: *mut c_void,
) -> bool {
    // SAFETY: that is what `make` has passed, and it lasts.
    let note = unsafe { &*note.cast::<Note>() };
    let address = address as usize;
    if !is_used {
        // SAFETY: mimalloc says that what is in these pages is not needed.
        let failed = unsafe {
            call3(
                libc::SYS_madvise,
                address,
                size,
                libc::MADV_DONTNEED as usize,
            ) != 0
        };
        if !failed {
            COMMITTED.fetch_sub(note.mark(address, size, false) * PAGE, Ordering::Relaxed);
        }
        return !failed;
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
    /// Marks the pages of a range as in use or not. Returns how many were not marked so before.
    fn mark(&self, address: usize, size: usize, in_use: bool) -> usize {
        let first = (address - self.start) / PAGE;
        let end = (address + size - self.start).div_ceil(PAGE).min(self.pages);
        let (mut page, mut changed) = (first, 0);
        while page < end {
            let bit = page % 64;
            let bits = (end - page).min(64 - bit);
            let mask = (u64::MAX >> (64 - bits)) << bit;
            // SAFETY: there is a word for each 64 pages behind the note, in its mapping.
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
