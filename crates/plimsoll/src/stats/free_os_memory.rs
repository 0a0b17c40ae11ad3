//! Go's `debug.FreeOSMemory`.

/// Returns free memory to the system, as far as the program's allocator can: Go's
/// `debug.FreeOSMemory`. Most allocators do so anyway, but later. Takes up to some milliseconds for
/// each GiB.
///
/// Does nothing if the allocator has no [backend](crate::stats::Backend): see
/// [`backend()`](crate::stats::backend()). Does not start collections of the program's collectors.
///
/// Not for signal handlers.
pub fn free_os_memory() {
    if let Some(backend) = crate::backend::backend() {
        backend.purge();
    }
}
