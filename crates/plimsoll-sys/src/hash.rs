//! Hash tables that make no system call.
//!
//! The standard library's own ask the system for random keys, once in each thread, which a system call filter may
//! forbid. These take the random bytes that the kernel gives each program at its start.

use std::collections;
use std::hash::{BuildHasher, DefaultHasher, Hasher};

use crate::os::random;

/// The standard library's map with [`Seeded`] hashes; made by `default`.
pub type HashMap<K, V> = collections::HashMap<K, V, Seeded>;

/// The standard library's set with [`Seeded`] hashes; made by `default`.
pub type HashSet<K> = collections::HashSet<K, Seeded>;

/// Hashes that begin with random bytes of the process: others cannot choose keys that collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seeded;

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(random::of_process());
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_have_equal_hashes_and_the_seed_counts() {
        assert_eq!(Seeded.hash_one("a"), Seeded.hash_one("a"));
        assert_ne!(Seeded.hash_one("a"), Seeded.hash_one("b"));
        let mut plain = DefaultHasher::new();
        std::hash::Hash::hash("a", &mut plain);
        assert_ne!(Seeded.hash_one("a"), plain.finish());
        let mut map = HashMap::default();
        map.insert("a", 1);
        assert_eq!(map.get("a"), Some(&1));
    }
}
