//! `membarrier(2)`: a call by the reader that acts as a full fence in every other thread of the
//! process, so that writers need none.

use super::syscall::call3;
use crate::primitives::{AtomicU32, Ordering};

/// The barriers that the kernel offers this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// A full fence that also restarts every current restartable sequence.
    Rseq,
    /// A full fence in every running thread.
    Fence,
    /// Unsupported: an old kernel, a system call filter, or an emulator.
    None,
}

const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: usize = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: usize = 1 << 7;

/// 0 before registration; otherwise a number that stands for a `Support`. Registration applies to
/// the address space and is idempotent, so concurrent calls are harmless.
static SUPPORT: AtomicU32 = AtomicU32::new(0);

/// Registers the process with the kernel, once, and returns the support available.
pub fn register() -> Support {
    match SUPPORT.load(Ordering::Acquire) {
        0 => {}
        1 => return Support::Rseq,
        2 => return Support::Fence,
        _ => return Support::None,
    }
    let fence = command(REGISTER_PRIVATE_EXPEDITED) && command(PRIVATE_EXPEDITED);
    let rseq = fence && command(REGISTER_PRIVATE_EXPEDITED_RSEQ) && command(PRIVATE_EXPEDITED_RSEQ);
    let (code, support) = match (rseq, fence) {
        (true, _) => (1, Support::Rseq),
        (false, true) => (2, Support::Fence),
        (false, false) => (3, Support::None),
    };
    SUPPORT.store(code, Ordering::Release);
    support
}

/// Executes a full fence in every thread of the process. Returns `false` if the kernel refused.
#[inline]
pub fn fence_all_threads() -> bool {
    command(PRIVATE_EXPEDITED)
}

/// Fences as [`fence_all_threads`] does, and restarts every current restartable sequence.
#[inline]
pub fn restart_all_sequences() -> bool {
    command(PRIVATE_EXPEDITED_RSEQ)
}

fn command(command: usize) -> bool {
    // SAFETY: `membarrier` takes no pointers.
    unsafe { call3(libc::SYS_membarrier, command, 0, 0) == 0 }
}
