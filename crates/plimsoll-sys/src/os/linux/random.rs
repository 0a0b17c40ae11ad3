//! Random seeds for sampling; not for cryptography.

use super::syscall::call3;
use crate::primitives::{AtomicU64, Ordering};

/// Returns a seed that differs from call to call and from run to run.
pub fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut random = [0u64; 1];
    // SAFETY: the kernel writes at most 8 bytes to `random`. The flag is `GRND_NONBLOCK`.
    unsafe { call3(libc::SYS_getrandom, random.as_mut_ptr() as usize, 8, 1) };
    random[0]
        ^ CALLS
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
}
