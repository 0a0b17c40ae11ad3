//! Random seeds for sampling; not for cryptography.

use std::hash::{BuildHasher, RandomState};

use crate::primitives::{AtomicU64, Ordering};

/// Returns a seed that differs from call to call and from run to run. Does not allocate.
pub fn seed() -> u64 {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    RandomState::new().hash_one(CALLS.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
