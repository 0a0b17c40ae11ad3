//! A shard for each processor, written inside restartable sequences.
//!
//! A sequence takes effect with its last instruction or not at all, so one instruction can count one
//! word (see [`mod@super::arch`]). An operation that changes several words together, such as a
//! `realloc`, uses a second row of shards, whose words only such operations change. Its steps go
//! through a *redo log*:
//!
//! 1. If the log holds an operation, its words are set to the values in the log, and the log is
//!    emptied. Setting a word to such a value can be repeated, so the sequence may start over here.
//! 2. The new operation is written to the log: its words, and the new value of each.
//! 3. One store marks the log as full. This is the commit.
//!
//! The next operation on the processor applies the operation in the log. Until then a reader that
//! finds the log full in a frozen generation uses the values in the log instead of the words.

use std::marker::PhantomData;

use plimsoll_process::cpus;
use plimsoll_sys::os::membarrier;
use plimsoll_sys::os::region::{self, Part, Region};
use plimsoll_sys::os::rseq::{self, Area};
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use super::arch;
use super::{Delta, GENERATION_BYTES, Generation, MAX_ENTRIES, SHARD_BYTES, Shards, TRAILER_BYTES};

/// The maximum number of processors for which the kernel can be built, used if it does not report
/// its own maximum.
const MAX_CPUS: usize = 8192;

/// Returns the number of processors that get shards.
fn most_cpus() -> usize {
    cpus::possible().unwrap_or(MAX_CPUS).min(MAX_CPUS)
}

/// Returns whether each number that a sequence can read is below [`most_cpus`]: sequences do not check. `current` is a
/// number that was just read.
fn all_have_shards(possible: Option<usize>, current: Option<usize>) -> bool {
    let most = possible.unwrap_or(MAX_CPUS);
    most <= MAX_CPUS && current.is_some_and(|current| current < most)
}

/// A word that no delta uses: an operation of fewer than [`MAX_ENTRIES`] words adds 0 to it.
const SCRATCH_WORD: u16 = (LOG / 8 - 1) as u16;

/// The half of a log's positions that an operation on two words does not use.
pub(super) const UNUSED_HALF: u64 = (SCRATCH_WORD as u64) << 16 | SCRATCH_WORD as u64;

// The scratch word is the last one before the log, in both positions of that half.
const _: () = assert!(8 * (SCRATCH_WORD as usize + 1) == LOG);
const _: () = assert!(UNUSED_HALF == 0x1_0001 * SCRATCH_WORD as u64);

/// The position of the log in a generation.
pub(super) const LOG: usize = GENERATION_BYTES - TRAILER_BYTES;

/// The redo log: positions of words, packed 16 bits each, 0 when empty; then the values.
#[repr(C)]
struct Log {
    words: AtomicU64,
    values: [AtomicU64; MAX_ENTRIES],
}

const _: () = assert!(size_of::<Log>() <= TRAILER_BYTES);

/// Two rows of shards in one mapping: for single words, then for several together.
pub struct PerCpu<D> {
    base: AtomicUsize,
    cpus: AtomicUsize,
    _delta: PhantomData<D>,
}

impl<D: Delta> PerCpu<D> {
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            cpus: AtomicUsize::new(0),
            _delta: PhantomData,
        }
    }

    /// Returns the bytes that the shards need.
    pub fn needs() -> usize {
        (2 * most_cpus() + 1) * SHARD_BYTES
    }

    /// Maps the shards, of which only those of processors in use will take memory; or uses `room`.
    /// Returns the address of the first, or `None` if the system refuses or may have more processors.
    pub fn open(&self, room: Option<Part>) -> Option<usize> {
        if !all_have_shards(cpus::possible(), rseq::processor()) {
            return None;
        }
        let cpus = most_cpus();
        let mapped = match room {
            None => {
                let mapped = region::map_within_limit(Self::needs())?;
                region::note(mapped, Self::needs());
                mapped
            }
            Some(room) => {
                let region = Region::new();
                region.adopt_in_file(room);
                if !region.commit(Self::needs()) {
                    return None;
                }
                room.base
            }
        };
        let base = mapped.next_multiple_of(SHARD_BYTES);
        self.cpus.store(cpus, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
        Some(base)
    }

    /// Returns the number of processors that have shards.
    pub fn cpus(&self) -> usize {
        self.cpus.load(Ordering::Relaxed)
    }

    /// Returns the distance from a shard to the shard of the same processor in the second row.
    fn second_row(&self) -> usize {
        self.cpus.load(Ordering::Relaxed) * SHARD_BYTES
    }

    /// Adds to several words in one cut.
    ///
    /// # Safety
    /// `area` is the calling thread's area for restartable sequences; `current` is the ledger's,
    /// turned to these shards.
    pub unsafe fn record(&self, current: &AtomicUsize, area: *mut Area, entries: &[(usize, u64)]) {
        let mut operation = Operation {
            words: [SCRATCH_WORD; MAX_ENTRIES],
            amounts: [0; MAX_ENTRIES],
        };
        for (slot, &(word, amount)) in entries.iter().enumerate().take(MAX_ENTRIES) {
            operation.words[slot] = word as u16;
            operation.amounts[slot] = amount;
        }
        // SAFETY: area and ledger are the calling thread's, by this function's contract; the
        // positions are those of entries or the scratch word.
        unsafe { arch::record(area, current.as_ptr(), self.second_row(), &operation) }
    }

    /// Adds to two words in one cut, as [`PerCpu::record`] does, for the fast path. It reads and
    /// leaves the same log, and skips the half of it that a pair does not use.
    ///
    /// # Safety
    /// As for [`PerCpu::record`]; both positions lie within the delta and differ.
    #[inline(always)]
    pub unsafe fn record_pair(
        &self,
        current: &AtomicUsize,
        area: *mut Area,
        entries: [(usize, u64); 2],
    ) {
        let [(first, _), (second, _)] = entries;
        let packed = UNUSED_HALF << 32 | (second as u64) << 16 | first as u64;
        // SAFETY: area and ledger are the calling thread's, and both positions lie within the
        // delta, by this function's contract.
        unsafe { arch::record_pair(area, current.as_ptr(), self.second_row(), packed, entries) }
    }

    /// Returns the words and the log of a shard in a generation.
    fn frozen(&self, row: usize, cpu: usize, generation: Generation) -> (&[AtomicU64], &Log) {
        let shard = self.base.load(Ordering::Acquire) + row + cpu * SHARD_BYTES;
        let address = shard + generation.index() * GENERATION_BYTES;
        // SAFETY: the address lies within the mapping made by `open`, which is never unmapped;
        // words and log are atomics. The scratch word lies between the delta and the log.
        unsafe {
            let words = std::slice::from_raw_parts(address as *const AtomicU64, LOG / 8);
            (words, &*((address + LOG) as *const Log))
        }
    }
}

/// The input of the sequence: positions of words packed as in [`Log`], then the amounts to add.
#[repr(C)]
pub(super) struct Operation {
    pub(super) words: [u16; MAX_ENTRIES],
    pub(super) amounts: [u64; MAX_ENTRIES],
}

impl<D: Delta> Shards<D> for PerCpu<D> {
    fn settle(&self, _frozen: Generation) -> bool {
        membarrier::restart_all_sequences()
    }

    fn add_up(&self, generation: Generation, total: &mut D) {
        let total = total.words_mut();
        for cpu in 0..self.cpus.load(Ordering::Relaxed) {
            let (single, _) = self.frozen(0, cpu, generation);
            let (several, log) = self.frozen(self.second_row(), cpu, generation);
            for ((sum, single), several) in total.iter_mut().zip(single).zip(several) {
                let both = single
                    .load(Ordering::Relaxed)
                    .wrapping_add(several.load(Ordering::Relaxed));
                *sum = sum.wrapping_add(both);
            }
            let packed = log.words.load(Ordering::Relaxed);
            if packed == 0 {
                continue;
            }
            for (position, value) in log.values.iter().enumerate() {
                let word = usize::from((packed >> (16 * position)) as u16);
                if word < total.len() {
                    let noted = value.load(Ordering::Relaxed);
                    let carried_out = several[word].load(Ordering::Relaxed);
                    total[word] = total[word].wrapping_add(noted.wrapping_sub(carried_out));
                }
            }
        }
    }

    fn bytes(&self) -> (usize, usize) {
        let mapped = 2 * self.cpus.load(Ordering::Relaxed) * SHARD_BYTES;
        (mapped, mapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_per_processor_only_if_every_processor_has_one() {
        assert!(all_have_shards(Some(4), Some(3)));
        assert!(all_have_shards(None, Some(MAX_CPUS - 1)));
        assert!(!all_have_shards(Some(4), Some(4)));
        assert!(!all_have_shards(Some(MAX_CPUS + 1), Some(0)));
        assert!(!all_have_shards(Some(4), None));
    }
}
