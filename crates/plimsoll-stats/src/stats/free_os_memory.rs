//! Go's `debug.FreeOSMemory`.

use plimsoll_sys::os::filter;

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
    if let Some(backend) =
        plimsoll_backend::backend::backend().filter(|_| filter::may_release_memory())
    {
        backend.purge();
    }
}
