//! What jemalloc calls to map memory, to put it to use, and to give it back.
//!
//! By default jemalloc keeps what it has mapped, and reuses what it has purged without a word. It
//! does say so to hooks that take pages as *committed* or not, a thing that Linux knows nothing of:
//!
//! * `alloc` maps, and leaves it to the caller what is committed. jemalloc maps more than it needs
//!   at once, none of it committed, and says `commit` of the part that it puts to use;
//! * `decommit` is `madvise(MADV_DONTNEED)`, what jemalloc would do in its place as `purge_forced`.
//!   But it succeeds, and so jemalloc says `commit` before it uses the pages again;
//! * there is no `dalloc`, so that nothing is unmapped, as by default.
//!
//! jemalloc calls these with locks of its own, from any thread that allocates or frees, and a
//! nested allocation would wait for itself: all that they do is atomic additions and system calls.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;

use tikv_jemalloc_sys::extent_hooks_t;

use super::mappings;
use crate::os::region::map;
use crate::os::syscall::call3;
use crate::primitives::{AtomicUsize, Ordering};

static RESERVED: AtomicUsize = AtomicUsize::new(0);
static COMMITTED: AtomicUsize = AtomicUsize::new(0);

/// Never written to; jemalloc's type is not `const`.
struct Table(extent_hooks_t);

// SAFETY: nobody writes to it.
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

/// What arenas are given.
pub(super) fn table() -> *mut extent_hooks_t {
    (&raw const TABLE.0).cast_mut()
}

/// Bytes of address space.
pub(super) fn reserved() -> usize {
    RESERVED.load(Ordering::Relaxed)
}

/// Bytes of it that are in use or were, and were not purged since.
pub(super) fn committed() -> usize {
    COMMITTED.load(Ordering::Relaxed)
}

/// Adds what an arena had mapped before it had the hooks: jemalloc takes all of that as committed.
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
    // SAFETY: jemalloc passes the address of its variables.
    unsafe {
        *zero = true;
        if *commit {
            COMMITTED.fetch_add(size, Ordering::Relaxed);
        }
    }
    address as *mut c_void
}

/// Maps fresh pages at a multiple of `alignment`; at `wanted` and nowhere else if that is not 0.
fn map_aligned(wanted: usize, size: usize, alignment: usize) -> Option<usize> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let address = map(size, wanted, access)?;
    if wanted != 0 && address != wanted {
        unmap(address, size);
        return None;
    }
    if address % alignment == 0 {
        return Some(address);
    }
    unmap(address, size);
    // With room for the worst place, and what is too much cut off.
    let longer = size.checked_add(alignment)?;
    let address = map(longer, 0, access)?;
    let aligned = address.next_multiple_of(alignment);
    unmap(address, aligned - address);
    unmap(aligned + size, address + longer - (aligned + size));
    Some(aligned)
}

fn unmap(address: usize, length: usize) {
    if length > 0 {
        // SAFETY: the range was mapped by a hook, and nobody has it any more.
        unsafe { call3(libc::SYS_munmap, address, length, 0) };
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
    let failed = advise(address as usize + offset, length, libc::MADV_DONTNEED);
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
    advise(address as usize + offset, length, libc::MADV_FREE)
}

unsafe extern "C" fn purge_forced(
    _: *mut extent_hooks_t,
    address: *mut c_void,
    _: usize,
    offset: usize,
    length: usize,
    _: c_uint,
) -> bool {
    advise(address as usize + offset, length, libc::MADV_DONTNEED)
}

/// Returns whether the system refuses.
fn advise(address: usize, length: usize, advice: i32) -> bool {
    // SAFETY: the pages are jemalloc's, which has just said that what is in them is not needed.
    unsafe { call3(libc::SYS_madvise, address, length, advice as usize) != 0 }
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
