//! Go's `debug.FreeOSMemory`.

use plimsoll_process::residency;
use plimsoll_sys::os::filter;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// Returns free memory to the system, as far as the program's allocator can: Go's
/// `debug.FreeOSMemory`. Most allocators do so anyway, but later. Takes up to some milliseconds for
/// each GiB.
///
/// Does nothing if the allocator has no [backend](crate::stats::Backend): see
/// [`backend()`](crate::stats::backend()), or if a system call filter (seccomp) of the process may forbid the calls that
/// release memory. Does not start collections of the program's collectors.
///
/// Not for signal handlers.
pub fn free_os_memory() {
    return_free_memory();
}

static RETURNED: AtomicU64 = AtomicU64::new(0);

/// Returns the bytes that the calls of [`free_os_memory`] in this process have returned, by anyone: by how much the
/// resident memory fell meanwhile. 0 where the system does not report it.
pub fn returned_bytes() -> u64 {
    RETURNED.load(Ordering::Relaxed)
}

/// Does the same as [`free_os_memory`], and returns the bytes by which the resident memory that is in no file fell meanwhile.
/// Threads that allocate or free at the same time change it as well.
pub fn return_free_memory() -> u64 {
    let backend = plimsoll_backend::backend::backend();
    let Some(backend) = backend.filter(|_| filter::may_release_memory()) else {
        return 0;
    };
    let before = residency::anonymous();
    backend.purge();
    let returned = match (before, residency::anonymous()) {
        (Some(before), Some(after)) => before.saturating_sub(after),
        _ => 0,
    };
    RETURNED.fetch_add(returned, Ordering::Relaxed);
    returned
}
