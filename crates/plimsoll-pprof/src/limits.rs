//! Limits on the size of a profile that is read.

/// The limits beyond which reading fails.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of the uncompressed input, in bytes.
    pub read_bytes: u64,
    /// Maximum size of the profile in memory, in bytes. Below 4 GiB, so that 32-bit indices suffice
    /// for all tables.
    pub kept_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_bytes: 4 << 30,
            kept_bytes: 1 << 30,
        }
    }
}
