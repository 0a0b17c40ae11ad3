//! The hooks by which jemalloc maps memory, commits it, and returns it.
//!
//! By default jemalloc keeps its mappings, and reuses purged pages without a call. It does report
//! the reuse to hooks that treat pages as *committed* or not, a distinction that Linux does not
//! make:
//!
//! * `alloc` maps, and leaves it to the caller whether the pages are committed. jemalloc maps more
//!   than it needs, uncommitted, and calls `commit` for the part that it starts to use;
//! * `decommit` is `madvise(MADV_DONTNEED)`, as jemalloc would otherwise do in `purge_forced`. It
//!   succeeds, so jemalloc calls `commit` before it uses the pages again;
//! * `dalloc` is absent, so nothing is unmapped, as by default.
//!
//! jemalloc calls these hooks while it holds its locks, on any thread that allocates or frees; a
//! nested allocation would deadlock. So they only use atomic additions and system calls.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::extent_hooks_t;

use plimsoll_sys::os::pages::{self, map_at};
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::mappings;

static RESERVED: AtomicUsize = AtomicUsize::new(0);
static COMMITTED: AtomicUsize = AtomicUsize::new(0);

/// Never written to; jemalloc's type is not `const`.
struct Table(extent_hooks_t);

// SAFETY: the table is never written to.
unsafe impl Sync for Table {}

static TABLE: Table = Table(extent_hooks_t {
    alloc: Some(alloc),
    dalloc: None,
    destroy: Some(destroy),
    commit: Some(commit),
    decommit: Some(decommit),
    purge_lazy: Some(purge_lazy),
    purge_forced: Some(purge_forced),
    split: Some(split),
    merge: Some(merge),
});

/// Returns the hooks that arenas receive.
pub(super) fn table() -> *mut extent_hooks_t {
    (&raw const TABLE.0).cast_mut()
}

/// Returns the bytes of address space.
pub(super) fn reserved() -> usize {
    RESERVED.load(Ordering::Relaxed)
}

/// Returns the bytes of address space that are or were in use, and have not been purged since.
pub(super) fn committed() -> usize {
    COMMITTED.load(Ordering::Relaxed)
}

/// Adds the mappings that an arena made before it received the hooks: jemalloc treats all of them
/// as committed.
pub(super) fn add_mapped_before(bytes: usize) {
    RESERVED.fetch_add(bytes, Ordering::Relaxed);
    COMMITTED.fetch_add(bytes, Ordering::Relaxed);
}

unsafe extern "C" fn alloc(
    _: *mut extent_hooks_t,
    wanted: *mut c_void,
    size: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    _: c_uint,
) -> *mut c_void {
    let Some(address) = map_aligned(wanted as usize, size, alignment) else {
        return null_mut();
    };
    RESERVED.fetch_add(size, Ordering::Relaxed);
    mappings::note(address..address + size);
    // SAFETY: jemalloc passes the addresses of its variables.
    unsafe {
        *zero = true;
        if *commit {
            COMMITTED.fetch_add(size, Ordering::Relaxed);
        }
    }
    address as *mut c_void
}

/// Maps fresh pages at a multiple of `alignment`. If `wanted` is not 0, maps them there or fails.
fn map_aligned(wanted: usize, size: usize, alignment: usize) -> Option<usize> {
    let address = map_at(size, wanted)?;
    if wanted != 0 && address != wanted {
        unmap(address, size);
        return None;
    }
    if address % alignment == 0 {
        return Some(address);
    }
    unmap(address, size);
    // Map enough for the worst alignment, and unmap the excess.
    let longer = size.checked_add(alignment)?;
    let address = map_at(longer, 0)?;
    let aligned = address.next_multiple_of(alignment);
    unmap(address, aligned - address);
    unmap(aligned + size, address + longer - (aligned + size));
    Some(aligned)
}

fn unmap(address: usize, length: usize) {
    if length > 0 {
        // SAFETY: a hook mapped the range, and no other code uses it.
        unsafe { pages::unmap(address, length) };
    }
}

unsafe extern "C" fn destroy(
    _: *mut extent_hooks_t,
    address: *mut c_void,
    size: usize,
    committed: bool,
    _: c_uint,
) {
    mappings::forget(address as usize..address as usize + size);
    unmap(address as usize, size);
    RESERVED.fetch_sub(size, Ordering::Relaxed);
    if committed {
        COMMITTED.fetch_sub(size, Ordering::Relaxed);
    }
}

unsafe extern "C" fn commit(
    _: *mut extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    length: usize,
    _: c_uint,
) -> bool {
    COMMITTED.fetch_add(length, Ordering::Relaxed);
    false
}

unsafe extern "C" fn decommit(
    _: *mut extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    length: usize,
    _: c_uint,
) -> bool {
    let failed = discard(address as usize + offset, length);
    if !failed {
        COMMITTED.fetch_sub(length, Ordering::Relaxed);
    }
    failed
}

unsafe extern "C" fn purge_lazy(
    _: *mut extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    length: usize,
    _: c_uint,
) -> bool {
    // SAFETY: the pages are jemalloc's, which no longer needs their contents.
    unsafe { !pages::discard_lazily(address as usize + offset, length) }
}

unsafe extern "C" fn purge_forced(
    _: *mut extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    length: usize,
    _: c_uint,
) -> bool {
    discard(address as usize + offset, length)
}

/// Returns pages to the system. Returns whether it refused.
fn discard(address: usize, length: usize) -> bool {
    // SAFETY: the pages are jemalloc's, which no longer needs their contents.
    unsafe { !pages::discard(address, length) }
}

unsafe extern "C" fn split(
    _: *mut extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}

unsafe extern "C" fn merge(
    _: *mut extent_hooks_t,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    false
}
