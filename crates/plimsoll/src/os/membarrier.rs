//! `membarrier(2)`: one call by the reader that counts as a full fence in every other thread of the
//! process, so that writers need none.

use super::syscall::call3;
use crate::primitives::{AtomicU32, Ordering};

/// What the kernel lets this process do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// Also restarts whoever is inside a restartable sequence.
    Rseq,
    /// A full fence in every running thread.
    Fence,
    /// Not there: an old kernel, a system-call filter, an emulator.
    None,
}

const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: usize = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: usize = 1 << 7;

/// 0: not asked yet; otherwise 1 + the `Support` as a number. Registration is per address space and
/// idempotent, so threads that race here do no harm.
static SUPPORT: AtomicU32 = AtomicU32::new(0);

/// Registers the process with the kernel, once, and says what is to be had.
pub(crate) fn register() -> Support {
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

/// A full fence in every thread of the process. False if the kernel refused.
pub(crate) fn fence_all_threads() -> bool {
    command(PRIVATE_EXPEDITED)
}

/// As [`fence_all_threads`], and every restartable sequence under way starts over.
pub(crate) fn restart_all_sequences() -> bool {
    command(PRIVATE_EXPEDITED_RSEQ)
}

fn command(command: usize) -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { call3(libc::SYS_membarrier, command, 0, 0) == 0 }
}
