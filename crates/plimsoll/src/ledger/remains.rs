//! What the shards of a process that is gone came to, from their bytes in a file. Bytes that are
//! not there are zeros.

use std::mem::offset_of;

use super::per_cpu::LOG;
use super::per_thread::Trailer;
use super::{Delta, GENERATION_BYTES, MAX_ENTRIES, Protocol, SHARD_BYTES, TRAILER_BYTES};

/// The shards.
pub(crate) struct Remains<'a> {
    /// The number of a [`Protocol`].
    pub(crate) protocol: u64,
    /// Two generations, and what was counted early, a page each.
    pub(crate) shared: &'a [u8],
    /// From the first one on.
    pub(crate) shards: &'a [u8],
    /// For how many there is room, by the header.
    pub(crate) count: usize,
}

impl Remains<'_> {
    /// The bytes that shards may take, of which there may be fewer.
    pub(crate) fn length(protocol: u64, count: usize) -> usize {
        let rows = if protocol == Protocol::PerCpu as u64 {
            2
        } else {
            1
        };
        count.saturating_mul(rows * SHARD_BYTES)
    }

    /// The sum of everything, and how many threads were counting something of which there may be a
    /// part.
    pub(crate) fn add_up<D: Delta>(&self) -> (D, u64) {
        let mut total = D::ZERO;
        for page in 0..3 {
            add(&mut total, self.shared, page * GENERATION_BYTES);
        }
        let in_flight = match self.protocol {
            protocol if protocol == Protocol::PerCpu as u64 => {
                self.add_per_cpu(&mut total);
                0
            }
            0 => 0,
            _ => self.add_per_thread(&mut total),
        };
        (total, in_flight)
    }

    /// As [`super::per_cpu`] adds up what is frozen: nobody writes to either generation.
    fn add_per_cpu<D: Delta>(&self, total: &mut D) {
        for shard in 0..self.there(self.count.saturating_mul(2)) {
            for generation in 0..2 {
                let at = shard * SHARD_BYTES + generation * GENERATION_BYTES;
                add(total, self.shards, at);
                let packed = word(self.shards, at + LOG);
                if shard < self.count || packed == 0 {
                    continue;
                }
                for position in 0..MAX_ENTRIES {
                    let of = usize::from((packed >> (16 * position)) as u16);
                    if let Some(sum) = total.words_mut().get_mut(of) {
                        let noted = word(self.shards, at + LOG + 8 + 8 * position);
                        let carried_out = word(self.shards, at + 8 * of);
                        *sum = sum.wrapping_add(noted.wrapping_sub(carried_out));
                    }
                }
            }
        }
    }

    fn add_per_thread<D: Delta>(&self, total: &mut D) -> u64 {
        let mut in_flight = 0;
        for shard in 0..self.there(self.count) {
            let at = shard * SHARD_BYTES;
            let trailer = at + GENERATION_BYTES - TRAILER_BYTES;
            let index = word(self.shards, trailer + offset_of!(Trailer, index)) as u32;
            // Those behind were never given out.
            if index as usize != shard {
                break;
            }
            add(total, self.shards, at);
            add(total, self.shards, at + GENERATION_BYTES);
            let active = word(self.shards, trailer + offset_of!(Trailer, active));
            in_flight += u64::from(active != 0);
        }
        in_flight
    }

    /// How many of so many shards have bytes.
    fn there(&self, shards: usize) -> usize {
        shards.min(self.shards.len().div_ceil(SHARD_BYTES))
    }
}

fn add<D: Delta>(total: &mut D, bytes: &[u8], at: usize) {
    for (position, sum) in total.words_mut().iter_mut().enumerate() {
        *sum = sum.wrapping_add(word(bytes, at + 8 * position));
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |&word| u64::from_ne_bytes(word))
}
