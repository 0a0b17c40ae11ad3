//! Installs the hooks in jemalloc's arenas.
//!
//! jemalloc has four arenas for each processor, and creates them as threads start. Creating all of
//! them in advance to install hooks would take 16 ms and 34 MB on 64 processors. So each thread,
//! before its first allocation, looks up its arena and installs the hooks unless another thread
//! has. An arena that a thread has just been assigned is empty, so no mapping of it is missed. Two
//! other kinds exist:
//!
//! * the first arena contains jemalloc's own blocks from the beginning. Its mappings up to then are
//!   read from jemalloc's statistics, once;
//! * blocks of 8 MiB and more have a separate arena, which jemalloc creates with the first of them.
//!   It is created earlier instead, in the same way, with the hooks.
//!
//! An arena's own structures come in blocks of 2 MiB and more from a part of it whose hooks cannot
//! be changed. So hooks see only extents, and [metadata] is derived from jemalloc's statistics.

use std::ffi::{CStr, c_uint};
use std::ptr::null_mut;

use tikv_jemalloc_sys::extent_hooks_t;

use plimsoll_sys::os::pages;
use plimsoll_sys::primitives::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::{control, hooks};

/// The maximum number of arenas in jemalloc.
const MAX_ARENAS: usize = 4096;

/// Selects all arenas where a number of an arena is expected.
pub(super) const ALL: usize = 4096;

/// Bytes of structures in a new arena.
const FIRST_METADATA: usize = 2 << 20;

/// No thread has started to install hooks.
const NEW: u32 = 0;
/// A thread is installing hooks. A thread that starts meanwhile leaves its arena to the next one.
const OPENING: u32 = 1;
/// Arenas receive hooks.
const OPEN: u32 = 2;
/// Arenas receive no hooks: jemalloc has an unsupported configuration.
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NEW);

/// Whether an arena has the hooks, or is about to; or has other hooks, and is left alone.
static IS_SETTLED: [AtomicBool; MAX_ARENAS] = [const { AtomicBool::new(false) }; MAX_ARENAS];

/// The default hooks of an arena.
static DEFAULT_HOOKS: AtomicPtr<extent_hooks_t> = AtomicPtr::new(null_mut());

static METADATA: AtomicUsize = AtomicUsize::new(0);

/// Returns whether the hooks count mappings.
pub(super) fn are_counted() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Returns the bytes of pages with blocks in them, in all arenas. Takes no lock.
pub(super) fn active() -> Option<usize> {
    // SAFETY: the control has this type.
    unsafe { control::read(c"approximate_stats.active") }
}

/// Returns the bytes mapped for jemalloc's structures.
pub(super) fn metadata() -> usize {
    METADATA.load(Ordering::Relaxed)
}

/// Installs the hooks in the calling thread's arena. Called by each thread before its first
/// allocation.
pub(super) fn enlist() {
    let began = STATE.compare_exchange(NEW, OPENING, Ordering::AcqRel, Ordering::Acquire);
    if began.is_ok() {
        let opened = is_as_by_default() && open().is_some();
        STATE.store(if opened { OPEN } else { CLOSED }, Ordering::Release);
    }
    if are_counted() {
        // SAFETY: the control has this type.
        if let Some(arena) = unsafe { control::read::<c_uint>(c"thread.arena") } {
            if give_hooks(arena as usize) {
                METADATA.fetch_add(FIRST_METADATA, Ordering::Relaxed);
            }
        }
    }
}

/// Returns whether jemalloc, in its configuration, maps and purges as the hooks do.
fn is_as_by_default() -> bool {
    // SAFETY: the controls have these types.
    let (retains, has_statistics, huge_pages, batch) = unsafe {
        (
            control::read::<bool>(c"opt.retain"),
            control::read::<bool>(c"config.stats"),
            control::read::<bool>(c"opt.hpa"),
            control::read::<usize>(c"opt.process_madvise_max_batch"),
        )
    };
    retains == Some(true)
        && has_statistics == Some(true)
        && huge_pages != Some(true)
        && batch.unwrap_or(0) == 0
        && control::option_is(c"opt.percpu_arena", c"disabled")
        && control::option_is(c"opt.thp", c"default")
        && !control::option_is(c"opt.dss", c"primary")
        // Otherwise, jemalloc makes purged pages inaccessible, and the hooks do not.
        && pages::are_overcommitted()
}

/// Installs hooks in all existing arenas, and counts their earlier mappings.
fn open() -> Option<()> {
    // SAFETY: the controls have these types.
    let (automatic, oversize, default_hooks) = unsafe {
        (
            control::read::<c_uint>(c"opt.narenas")? as usize,
            control::read::<usize>(c"opt.oversize_threshold")?,
            control::read_of_arena::<*mut extent_hooks_t>(c"arena.0.extent_hooks", 1, 0)?,
        )
    };
    DEFAULT_HOOKS.store(default_hooks, Ordering::Relaxed);
    refresh()?;
    if oversize > 0 && !is_there(automatic) {
        make_oversize_arena(automatic)?;
    }
    refresh()?;
    for arena in 0..=automatic.min(MAX_ARENAS - 1) {
        if is_there(arena) {
            let before = Extents::from_arena(arena)?;
            if give_hooks(arena) {
                hooks::add_mapped_before(before.in_use + before.retained);
                METADATA.fetch_add(before.metadata, Ordering::Relaxed);
            }
        }
    }
    Some(())
}

/// Creates the arena for large blocks as jemalloc does with the first of them: it purges
/// immediately, unless jemalloc has background threads.
fn make_oversize_arena(arena: usize) -> Option<()> {
    let of_thread = control::Name::find(c"thread.arena")?;
    // jemalloc 5.3.0 gives arenas no names.
    let name = control::Name::find(c"arena.0.name").map(|name| name.with(1, arena));
    // SAFETY: the controls have these types. The thread returns to its own arena before it
    // allocates.
    unsafe {
        let own = of_thread.read::<c_uint>()?;
        let made = of_thread.write(arena as c_uint);
        if !of_thread.write(own) || !made {
            return None;
        }
        if let Some(name) = name {
            name.write(c"auto_oversize".as_ptr());
        }
        if control::read::<bool>(c"background_thread") != Some(true) {
            for [default, of_arena] in [
                [c"arenas.dirty_decay_ms", c"arena.0.dirty_decay_ms"],
                [c"arenas.muzzy_decay_ms", c"arena.0.muzzy_decay_ms"],
            ] {
                if control::read::<isize>(default)? > 0 {
                    let name = control::Name::find(of_arena)?.with(1, arena);
                    name.write::<isize>(0);
                }
            }
        }
    }
    Some(())
}

/// Returns whether an arena exists, as of the last [`refresh`].
fn is_there(arena: usize) -> bool {
    // SAFETY: the control has this type.
    unsafe { control::read_of_arena(c"arena.0.initialized", 1, arena) }.unwrap_or(false)
}

/// Installs the hooks in an arena in place of jemalloc's default hooks. Returns whether it did; an
/// arena with other hooks keeps them.
fn give_hooks(arena: usize) -> bool {
    let is_settled = |settled: &AtomicBool| settled.swap(true, Ordering::Relaxed);
    if IS_SETTLED.get(arena).is_none_or(is_settled) {
        return false;
    }
    let Some(name) = control::Name::find(c"arena.0.extent_hooks") else {
        return false;
    };
    let hooks = name.with(1, arena);
    let default = DEFAULT_HOOKS.load(Ordering::Relaxed);
    // SAFETY: the control has this type; the hooks meet their contract.
    unsafe { hooks.read() == Some(default) && hooks.write(hooks::table()) }
}

/// The statistics of an arena's extents, in bytes, as of the last [`refresh`].
struct Extents {
    /// Extents with blocks in them, and free ones that are not purged.
    in_use: usize,
    /// Extents that are only mapped.
    retained: usize,
    metadata: usize,
}

impl Extents {
    fn from_arena(arena: usize) -> Option<Self> {
        // SAFETY: all of these controls have this type.
        let read = |name: &CStr| unsafe { control::read_of_arena::<usize>(name, 2, arena) };
        let in_use = control::page_size()?
            * (read(c"stats.arenas.0.pactive")?
                + read(c"stats.arenas.0.pdirty")?
                + read(c"stats.arenas.0.pmuzzy")?);
        Some(Self {
            in_use,
            retained: read(c"stats.arenas.0.retained")?,
            metadata: read(c"stats.arenas.0.mapped")?.saturating_sub(in_use),
        })
    }
}

/// Refreshes jemalloc's copy of its statistics.
pub(super) fn refresh() -> Option<()> {
    // SAFETY: the control has this type.
    unsafe { control::Name::find(c"epoch")?.write(1_u64) }.then_some(())
}

/// Returns free pages to the system, and derives the metadata anew.
pub(super) fn purge() {
    if let Some(flush) = control::Name::find(c"thread.tcache.flush") {
        flush.run();
    }
    if let Some(purge) = control::Name::find(c"arena.0.purge") {
        purge.with(1, ALL).run();
    }
    if are_counted() && refresh().is_some() {
        let arenas = (0..MAX_ARENAS).filter(|&arena| IS_SETTLED[arena].load(Ordering::Relaxed));
        let metadata = arenas.filter_map(|arena| Some(Extents::from_arena(arena)?.metadata));
        METADATA.store(metadata.sum(), Ordering::Relaxed);
    }
}
