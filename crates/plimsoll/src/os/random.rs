//! Randomness, as much as sampling needs.

use super::syscall::call3;
use crate::primitives::{AtomicU64, Ordering};

/// A seed that differs from call to call and from run to run.
pub(crate) fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut random = [0u64; 1];
    // SAFETY: fills the buffer or fails; GRND_NONBLOCK.
    unsafe { call3(libc::SYS_getrandom, random.as_mut_ptr() as usize, 8, 1) };
    random[0]
        ^ CALLS
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
}
