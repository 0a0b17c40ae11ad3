//! A call by the reader that acts as a full fence in every other thread of the process. Windows has
//! one; on other systems, writers need fences of their own.

use super::native;

/// The barriers that the system offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// A full fence that also restarts every current restartable sequence: only on Linux.
    Rseq,
    /// A full fence in every running thread.
    Fence,
    /// None.
    None,
}

/// Returns the support available.
#[inline]
pub fn register() -> Support {
    if native::HAS_BARRIER {
        Support::Fence
    } else {
        Support::None
    }
}

/// Executes a full fence in every thread of the process. Returns `false` if the system has no such
/// call.
#[inline]
pub fn fence_all_threads() -> bool {
    native::barrier();
    native::HAS_BARRIER
}

/// Returns `false`: there are no restartable sequences.
#[inline]
pub fn restart_all_sequences() -> bool {
    false
}
