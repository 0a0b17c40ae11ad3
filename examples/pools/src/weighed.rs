//! Values of caches (moka, quick_cache) and buffers (bytes) that are declared for as long as they exist.

use std::ops::Deref;

use plimsoll::stats::Declared;

/// A value whose bytes an account declares.
#[derive(Debug)]
pub struct Weighed<V> {
    value: V,
    bytes: u64,
    account: Declared,
}

impl<V> Weighed<V> {
    pub fn new(value: V, bytes: u64, account: &Declared) -> Self {
        account.grow(bytes);
        let account = account.clone();
        Self {
            value,
            bytes,
            account,
        }
    }

    /// Returns the declared bytes, for the weigher of a cache.
    pub fn weight(&self) -> u64 {
        self.bytes
    }
}

impl<V> Drop for Weighed<V> {
    fn drop(&mut self) {
        self.account.shrink(self.bytes);
    }
}

impl<V> Deref for Weighed<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

/// For `bytes::Bytes::from_owner`.
impl<V: AsRef<[u8]>> AsRef<[u8]> for Weighed<V> {
    fn as_ref(&self) -> &[u8] {
        self.value.as_ref()
    }
}
