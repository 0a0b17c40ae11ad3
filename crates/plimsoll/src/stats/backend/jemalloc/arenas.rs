//! Which of jemalloc's arenas have the hooks.
//!
//! jemalloc has four arenas for each processor, and makes them as threads come. Making all of them
//! at once to give them hooks would take 16 ms and 34 MB on 64 processors. So each thread, before
//! its first allocation, asks which arena is its own, and gives that the hooks if nobody has. An
//! arena that a thread has just been given is empty, so nothing of it escapes. There are two
//! others:
//!
//! * the first arena has jemalloc's own blocks from the beginning. What it has mapped by then is
//!   taken from jemalloc's statistics, once;
//! * blocks of 8 MiB and more have an arena of their own, which is made when the first of them is.
//!   It is made earlier instead, in the way that jemalloc makes it, with the hooks.
//!
//! What an arena keeps for its own structures comes in blocks of 2 MiB and more from a part of it
//! whose hooks cannot be changed. So hooks see extents and nothing else; what is
//! [metadata] has to be derived, from jemalloc's statistics.

use std::ffi::{CStr, c_uint};
use std::ptr::null_mut;

use tikv_jemalloc_sys::extent_hooks_t;

use super::{control, hooks};
use crate::os::region::PAGE;
use crate::os::syscall::call3;
use crate::primitives::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// As many as jemalloc can have.
const MOST: usize = 4096;

/// In place of a number, all arenas.
pub(super) const ALL: usize = 4096;

/// What an arena has for its structures when it is made.
const FIRST_METADATA: usize = 2 << 20;

/// Nobody has begun.
const NEW: u32 = 0;
/// Somebody is at it. A thread that begins meanwhile leaves its arena to the next one.
const OPENING: u32 = 1;
/// Arenas are given hooks.
const OPEN: u32 = 2;
/// They are not: jemalloc is set up in another way.
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NEW);

/// Whether each arena has the hooks, or is about to; or has others, and is left alone.
static IS_SETTLED: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

/// What arenas have if nobody has given them others.
static DEFAULT_HOOKS: AtomicPtr<extent_hooks_t> = AtomicPtr::new(null_mut());

static METADATA: AtomicUsize = AtomicUsize::new(0);

/// Whether there is anything to be told.
pub(super) fn are_counted() -> bool {
    STATE.load(Ordering::Acquire) == OPEN
}

/// Bytes of pages with blocks in them, in all arenas. Takes no lock.
pub(super) fn active() -> Option<usize> {
    // SAFETY: that is its type.
    unsafe { control::read(c"approximate_stats.active") }
}

/// Bytes mapped for jemalloc's structures.
pub(super) fn metadata() -> usize {
    METADATA.load(Ordering::Relaxed)
}

/// Called by each thread before its first allocation.
pub(super) fn enlist() {
    let began = STATE.compare_exchange(NEW, OPENING, Ordering::AcqRel, Ordering::Acquire);
    if began.is_ok() {
        let opened = is_as_by_default() && open().is_some();
        STATE.store(if opened { OPEN } else { CLOSED }, Ordering::Release);
    }
    if are_counted() {
        // SAFETY: that is its type.
        if let Some(arena) = unsafe { control::read::<c_uint>(c"thread.arena") } {
            if give_hooks(arena as usize) {
                METADATA.fetch_add(FIRST_METADATA, Ordering::Relaxed);
            }
        }
    }
}

/// Whether jemalloc maps and purges as hooks do in its place.
fn is_as_by_default() -> bool {
    // SAFETY: those are their types.
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
        && system_overcommits()
}

/// Where the system does not, jemalloc takes the access to purged pages away, and hooks do not.
fn system_overcommits() -> bool {
    let mut mode = [0_u8; 1];
    let path = c"/proc/sys/vm/overcommit_memory";
    // SAFETY: a path that ends with a zero, and a buffer as long as is said; the file is closed
    // once.
    let read = unsafe {
        let file = call3(
            libc::SYS_open,
            path.as_ptr() as usize,
            libc::O_CLOEXEC as usize,
            0,
        );
        if file < 0 {
            return false;
        }
        let read = call3(libc::SYS_read, file as usize, mode.as_mut_ptr() as usize, 1);
        call3(libc::SYS_close, file as usize, 0, 0);
        read
    };
    read == 1 && mode[0] != b'2'
}

/// Gives hooks to all arenas that there are, and counts what they have mapped.
fn open() -> Option<()> {
    // SAFETY: those are their types.
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
    for arena in 0..=automatic.min(MOST - 1) {
        if is_there(arena) {
            let before = Extents::of(arena)?;
            if give_hooks(arena) {
                hooks::add_mapped_before(before.in_use + before.retained);
                METADATA.fetch_add(before.metadata, Ordering::Relaxed);
            }
        }
    }
    Some(())
}

/// Makes the arena for large blocks as jemalloc does with the first of them: it purges at once,
/// unless there are threads for that.
fn make_oversize_arena(arena: usize) -> Option<()> {
    let of_thread = control::Name::find(c"thread.arena")?;
    // jemalloc 5.3.0 gives arenas no names.
    let name = control::Name::find(c"arena.0.name").map(|name| name.with(1, arena));
    // SAFETY: those are their types. The thread gets its own arena back before it allocates.
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

/// As of the last [`refresh`].
fn is_there(arena: usize) -> bool {
    // SAFETY: that is its type.
    unsafe { control::read_of_arena(c"arena.0.initialized", 1, arena) }.unwrap_or(false)
}

/// Gives an arena the hooks if it has those of jemalloc. True if it has them by that.
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
    // SAFETY: that is its type; the hooks keep to their contract.
    unsafe { hooks.read() == Some(default) && hooks.write(hooks::table()) }
}

/// What jemalloc's statistics say of an arena, in bytes, as of the last [`refresh`].
struct Extents {
    /// Extents with blocks in them, and free ones that are not purged.
    in_use: usize,
    /// Extents that are mapped and nothing else.
    retained: usize,
    metadata: usize,
}

impl Extents {
    fn of(arena: usize) -> Option<Self> {
        // SAFETY: that is the type of all of them.
        let read = |name: &CStr| unsafe { control::read_of_arena::<usize>(name, 2, arena) };
        let in_use = PAGE
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

/// Has jemalloc make its statistics anew.
pub(super) fn refresh() -> Option<()> {
    // SAFETY: that is its type.
    unsafe { control::Name::find(c"epoch")?.write(1_u64) }.then_some(())
}

/// Gives free pages back, and derives what cannot be counted anew.
pub(super) fn purge() {
    if let Some(flush) = control::Name::find(c"thread.tcache.flush") {
        flush.run();
    }
    if let Some(purge) = control::Name::find(c"arena.0.purge") {
        purge.with(1, ALL).run();
    }
    if are_counted() && refresh().is_some() {
        let arenas = (0..MOST).filter(|&arena| IS_SETTLED[arena].load(Ordering::Relaxed));
        let metadata = arenas.filter_map(|arena| Some(Extents::of(arena)?.metadata));
        METADATA.store(metadata.sum(), Ordering::Relaxed);
    }
}
