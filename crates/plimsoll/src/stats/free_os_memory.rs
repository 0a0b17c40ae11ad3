//! Go's `debug.FreeOSMemory`.

use super::backend;

/// Gives memory that has no blocks in it back to the system, as far as the program's allocator can:
/// Go's `debug.FreeOSMemory`. Like most allocators, it would do so by itself, but later. Takes up
/// to some milliseconds for each GiB.
///
/// Does nothing if the allocator has no [backend](crate::stats::Backend): see
/// [`backend()`](crate::stats::backend()). What collectors would free, they are not asked for.
///
/// Not for signal handlers.
pub fn free_os_memory() {
    if let Some(backend) = backend::backend() {
        backend.purge();
    }
}
