//! Sums the shards of a ledger from their bytes. Missing bytes count as zeros.

use crate::bytes;
use crate::layout::{LedgerLayout, protocol};

/// The shards of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct Shards<'a> {
    /// The layout of the shards.
    pub layout: LedgerLayout,
    /// A [`protocol`].
    pub protocol: u64,
    /// The shared shard: two generations, then one generation of counts from before the file was
    /// open.
    pub shared: &'a [u8],
    /// The bytes of the other shards.
    pub shards: &'a [u8],
    /// The number of shards with reserved space, from the header.
    pub count: usize,
}

impl Shards<'_> {
    /// Returns the size of `count` shards in bytes. A file may hold fewer bytes.
    pub fn length(layout: &LedgerLayout, protocol: u64, count: usize) -> usize {
        let rows = if protocol == protocol::PER_CPU { 2 } else { 1 };
        count.saturating_mul(rows * 2 * layout.generation_bytes)
    }

    /// Adds all shards to `totals`, modulo 2^64. Returns the number of threads that were counting
    /// an operation that changes several counters; a part of such an operation may be missing.
    /// Always returns 0 for per-CPU shards.
    pub fn add_to(&self, totals: &mut [u64]) -> u64 {
        for generation in 0..3 {
            let at = generation * self.layout.generation_bytes;
            add(totals, self.shared, at);
        }
        match self.protocol {
            0 => 0,
            protocol::PER_CPU => {
                self.add_per_cpu(totals);
                0
            }
            _ => self.add_per_thread(totals),
        }
    }

    fn shard_bytes(&self) -> usize {
        2 * self.layout.generation_bytes
    }

    /// Adds per-CPU shards, including the operations in redo logs that were not yet applied.
    fn add_per_cpu(&self, totals: &mut [u64]) {
        for shard in 0..self.present(self.count.saturating_mul(2)) {
            for generation in 0..2 {
                let at = shard * self.shard_bytes() + generation * self.layout.generation_bytes;
                add(totals, self.shards, at);
                let log = at + self.layout.log;
                let packed = word(self.shards, log);
                if shard < self.count || packed == 0 {
                    continue;
                }
                for position in 0..self.layout.log_entries {
                    let counter = usize::from((packed >> (16 * position)) as u16);
                    if let Some(total) = totals.get_mut(counter) {
                        let logged = word(self.shards, log + 8 + 8 * position);
                        let stored = word(self.shards, at + 8 * counter);
                        *total = total.wrapping_add(logged.wrapping_sub(stored));
                    }
                }
            }
        }
    }

    fn add_per_thread(&self, totals: &mut [u64]) -> u64 {
        let mut in_progress = 0;
        for shard in 0..self.present(self.count) {
            let at = shard * self.shard_bytes();
            let index = word(self.shards, at + self.layout.shard_index) as u32;
            // This shard and all later ones were never assigned.
            if index as usize != shard {
                break;
            }
            add(totals, self.shards, at);
            add(totals, self.shards, at + self.layout.generation_bytes);
            in_progress += u64::from(word(self.shards, at + self.layout.shard_active) != 0);
        }
        in_progress
    }

    /// Returns how many of `shards` shards have bytes in the file.
    fn present(&self, shards: usize) -> usize {
        shards.min(self.shards.len().div_ceil(self.shard_bytes()))
    }
}

fn add(totals: &mut [u64], bytes: &[u8], at: usize) {
    for (counter, total) in totals.iter_mut().enumerate() {
        *total = total.wrapping_add(word(bytes, at + 8 * counter));
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes::word(bytes, at).unwrap_or(0)
}
