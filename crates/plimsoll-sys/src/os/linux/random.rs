//! Random seeds for sampling; not for cryptography.

use super::syscall::call3;
use crate::primitives::{AtomicU64, Ordering};

/// Returns a seed that differs from call to call and from run to run.
pub fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut random = [0u64; 1];
    // SAFETY: the kernel writes at most 8 bytes to `random`. The flag is `GRND_NONBLOCK`.
    unsafe { call3(libc::SYS_getrandom, random.as_mut_ptr() as usize, 8, 1) };
    // If a filter forbids the call, the bytes of the process are left.
    random[0]
        ^ of_process()
        ^ CALLS
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Returns random bytes that the kernel gave the program at its start, which children of forks have as well; 0 if it
/// gave none. Makes no system call.
#[inline]
pub fn of_process() -> u64 {
    // SAFETY: `getauxval` has no preconditions.
    let bytes = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const [u64; 2];
    if bytes.is_null() {
        return 0;
    }
    // SAFETY: the kernel stored 16 bytes there, which stay for as long as the program runs.
    let [one, other] = unsafe { bytes.read_unaligned() };
    // Not the bytes themselves, which the C library uses as secrets.
    (one ^ other.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
