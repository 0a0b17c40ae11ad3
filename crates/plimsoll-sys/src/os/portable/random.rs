//! Random seeds for sampling; not for cryptography.

use std::hash::{BuildHasher, RandomState};

use crate::primitives::{AtomicU64, Ordering};

/// Returns a seed that differs from call to call and from run to run. Does not allocate.
pub fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed))
}

/// Returns random bytes that stay the same for as long as the program runs.
pub fn of_process() -> u64 {
    static SEED: AtomicU64 = AtomicU64::new(0);
    match SEED.load(Ordering::Relaxed) {
        0 => {
            let new = seed() | 1;
            let stored = SEED.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
            stored.err().unwrap_or(new)
        }
        seed => seed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
