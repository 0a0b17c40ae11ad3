//! A shard for each processor, written inside restartable sequences.
//!
//! A sequence takes effect with its last instruction or not at all, so one word can be counted with
//! one `inc` (see [`mod@super::increment`]). An operation that changes several words together, such
//! as a `realloc`, goes through a *redo log* in a second row of shards, whose words only such
//! operations change:
//!
//! 1. If the log holds an operation, its words are set to the values noted there, and it is
//!    emptied. Setting a word to a noted value can be repeated, so it does not matter if the
//!    sequence starts over here.
//! 2. The new operation is noted: which words, and what each comes to.
//! 3. One store marks the log as full. That is the commit.
//!
//! The noted operation is carried out by the next one on that processor. Until then the reader, who
//! finds the log full in a frozen generation, takes the noted values instead of the words.

use std::marker::PhantomData;

use super::{Delta, GENERATION_BYTES, Generation, MAX_ENTRIES, SHARD_BYTES, Shards, TRAILER_BYTES};
use crate::os::region::{self, Part, Region};
use crate::os::{cpus, membarrier, rseq::Area};
use crate::primitives::{AtomicU64, AtomicUsize, Ordering};

/// If the kernel does not say how many processors there can be: the most it can be built for.
const MOST_CPUS: usize = 8192;

fn most_cpus() -> usize {
    cpus::possible().unwrap_or(MOST_CPUS).min(MOST_CPUS)
}

/// A word that no delta uses: what an operation of fewer than [`MAX_ENTRIES`] words changes, by 0.
const SCRATCH_WORD: u16 = (LOG / 8 - 1) as u16;

/// The half of a log's positions that an operation on two words does not use.
const UNUSED_HALF: u64 = (SCRATCH_WORD as u64) << 16 | SCRATCH_WORD as u64;

/// Where the log lies in a generation.
pub(super) const LOG: usize = GENERATION_BYTES - TRAILER_BYTES;

/// The redo log: positions of words, packed 16 bits each, 0 when empty; then the values.
#[repr(C)]
struct Log {
    words: AtomicU64,
    values: [AtomicU64; MAX_ENTRIES],
}

const _: () = assert!(size_of::<Log>() <= TRAILER_BYTES);

/// Two rows of shards in one mapping: for single words, then for several together.
pub(crate) struct PerCpu<D> {
    base: AtomicUsize,
    cpus: AtomicUsize,
    _delta: PhantomData<D>,
}

impl<D: Delta> PerCpu<D> {
    pub(crate) const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            cpus: AtomicUsize::new(0),
            _delta: PhantomData,
        }
    }

    /// The bytes that the shards take.
    pub(crate) fn needs() -> usize {
        (2 * most_cpus() + 1) * SHARD_BYTES
    }

    /// Maps the shards, of which only those of processors in use will take memory; or takes `room`.
    /// Returns where the first begins, or `None` if the system refuses.
    pub(crate) fn open(&self, room: Option<Part>) -> Option<usize> {
        let cpus = most_cpus();
        let mapped = match room {
            None => {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let mapped = region::map(Self::needs(), 0, access)?;
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

    /// How many processors there are shards for.
    pub(crate) fn cpus(&self) -> usize {
        self.cpus.load(Ordering::Relaxed)
    }

    /// The distance from a shard to the shard of the same processor in the second row.
    fn second_row(&self) -> usize {
        self.cpus.load(Ordering::Relaxed) * SHARD_BYTES
    }

    /// Adds to several words in one cut.
    ///
    /// # Safety
    /// `area` is the calling thread's area for restartable sequences; `current` is the ledger's,
    /// turned to these shards.
    #[cfg(all(
        target_os = "linux",
        target_arch = "x86_64",
        not(any(miri, plimsoll_portable))
    ))]
    pub(crate) unsafe fn record(
        &self,
        current: &AtomicUsize,
        area: *mut Area,
        entries: &[(usize, u64)],
    ) {
        let mut operation = Operation {
            words: [SCRATCH_WORD; MAX_ENTRIES],
            amounts: [0; MAX_ENTRIES],
        };
        for (slot, &(word, amount)) in entries.iter().enumerate().take(MAX_ENTRIES) {
            operation.words[slot] = word as u16;
            operation.amounts[slot] = amount;
        }
        // SAFETY: the sequence writes only to the trailer and the words of the second row's shard
        // for the processor it runs on, in the current generation; `words` are positions
        // within a generation. The kernel's rules for sequences are kept: no calls, no
        // stack, one commit at the end.
        unsafe {
            std::arch::asm!(
                "771:",
                "lea {shard}, [rip + 773f]",
                "mov qword ptr [{area} + 8], {shard}",
                "774:",
                "imul {shard:e}, dword ptr [{area}], 8192",
                "add {shard}, qword ptr [{current}]",
                "add {shard}, {second_row}",
                // Carry out what is noted.
                "mov {packed}, qword ptr [{shard} + {log}]",
                "test {packed}, {packed}",
                "jz 772f",
                "movzx {word:e}, {packed:x}",
                "mov {value}, qword ptr [{shard} + {log} + 8]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {packed}, 16",
                "movzx {word:e}, {packed:x}",
                "mov {value}, qword ptr [{shard} + {log} + 16]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {packed}, 16",
                "movzx {word:e}, {packed:x}",
                "mov {value}, qword ptr [{shard} + {log} + 24]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {packed}, 16",
                "mov {value}, qword ptr [{shard} + {log} + 32]",
                "mov qword ptr [{shard} + {packed} * 8], {value}",
                "mov qword ptr [{shard} + {log}], 0",
                "772:",
                // Note the new operation.
                "movzx {word:e}, word ptr [{operation}]",
                "mov {value}, qword ptr [{shard} + {word} * 8]",
                "add {value}, qword ptr [{operation} + 8]",
                "mov qword ptr [{shard} + {log} + 8], {value}",
                "movzx {word:e}, word ptr [{operation} + 2]",
                "mov {value}, qword ptr [{shard} + {word} * 8]",
                "add {value}, qword ptr [{operation} + 16]",
                "mov qword ptr [{shard} + {log} + 16], {value}",
                "movzx {word:e}, word ptr [{operation} + 4]",
                "mov {value}, qword ptr [{shard} + {word} * 8]",
                "add {value}, qword ptr [{operation} + 24]",
                "mov qword ptr [{shard} + {log} + 24], {value}",
                "movzx {word:e}, word ptr [{operation} + 6]",
                "mov {value}, qword ptr [{shard} + {word} * 8]",
                "add {value}, qword ptr [{operation} + 32]",
                "mov qword ptr [{shard} + {log} + 32], {value}",
                "mov {packed}, qword ptr [{operation}]",
                "mov qword ptr [{shard} + {log}], {packed}",
                "775:",
                "mov qword ptr [{area} + 8], 0",
                ".pushsection .data.rel.ro.plimsoll_sequences,\"aw\"",
                ".balign 32",
                "773:",
                ".long 0, 0",
                ".quad 774b, 775b - 774b, 776f",
                ".popsection",
                ".pushsection .text.unlikely.plimsoll_sequences,\"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "776:",
                "jmp 771b",
                ".popsection",
                area = in(reg) area,
                current = in(reg) current.as_ptr(),
                second_row = in(reg) self.second_row(),
                operation = in(reg) &raw const operation,
                shard = out(reg) _,
                packed = out(reg_abcd) _,
                word = out(reg) _,
                value = out(reg) _,
                log = const LOG,
                options(nostack),
            );
        }
    }

    /// Adds to two words in one cut: what [`PerCpu::record`] does, for the fast path. It reads and
    /// leaves the same log, and skips the half of it that a pair does not use.
    ///
    /// # Safety
    /// As for [`PerCpu::record`]; both positions lie within the delta and differ.
    #[cfg(all(
        target_os = "linux",
        target_arch = "x86_64",
        not(any(miri, plimsoll_portable))
    ))]
    #[inline(always)]
    pub(crate) unsafe fn record_pair(
        &self,
        current: &AtomicUsize,
        area: *mut Area,
        [(first, first_amount), (second, second_amount)]: [(usize, u64); 2],
    ) {
        let packed = UNUSED_HALF << 32 | (second as u64) << 16 | first as u64;
        // SAFETY: as in `record`: the sequence writes only to the log and the words of the second
        // row's shard for the processor it runs on, in the current generation, and its last
        // instruction commits it.
        unsafe {
            std::arch::asm!(
                "771:",
                "lea {shard}, [rip + 773f]",
                "mov qword ptr [{area} + 8], {shard}",
                "774:",
                "imul {shard:e}, dword ptr [{area}], 8192",
                "add {shard}, qword ptr [{current}]",
                "add {shard}, {second_row}",
                // Carry out the operation in the log.
                "mov {log_words}, qword ptr [{shard} + {log}]",
                "test {log_words}, {log_words}",
                "jz 772f",
                "movzx {word:e}, {log_words:x}",
                "mov {value}, qword ptr [{shard} + {log} + 8]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {log_words}, 16",
                "movzx {word:e}, {log_words:x}",
                "mov {value}, qword ptr [{shard} + {log} + 16]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {log_words}, 16",
                "cmp {log_words:e}, {unused_half}",
                "je 777f",
                "movzx {word:e}, {log_words:x}",
                "mov {value}, qword ptr [{shard} + {log} + 24]",
                "mov qword ptr [{shard} + {word} * 8], {value}",
                "shr {log_words}, 16",
                "mov {value}, qword ptr [{shard} + {log} + 32]",
                "mov qword ptr [{shard} + {log_words} * 8], {value}",
                "777:",
                "mov qword ptr [{shard} + {log}], 0",
                "772:",
                // Write the new operation to the log, and commit it by the words' positions.
                "mov {value}, qword ptr [{shard} + {first} * 8]",
                "add {value}, {first_amount}",
                "mov qword ptr [{shard} + {log} + 8], {value}",
                "mov {value}, qword ptr [{shard} + {second} * 8]",
                "add {value}, {second_amount}",
                "mov qword ptr [{shard} + {log} + 16], {value}",
                "mov qword ptr [{shard} + {log}], {packed}",
                "775:",
                "mov qword ptr [{area} + 8], 0",
                ".pushsection .data.rel.ro.plimsoll_sequences,\"aw\"",
                ".balign 32",
                "773:",
                ".long 0, 0",
                ".quad 774b, 775b - 774b, 776f",
                ".popsection",
                ".pushsection .text.unlikely.plimsoll_sequences,\"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "776:",
                "jmp 771b",
                ".popsection",
                area = in(reg) area,
                current = in(reg) current.as_ptr(),
                second_row = in(reg) self.second_row(),
                packed = in(reg) packed,
                first = in(reg) first,
                second = in(reg) second,
                first_amount = in(reg) first_amount,
                second_amount = in(reg) second_amount,
                shard = out(reg) _,
                log_words = out(reg) _,
                word = out(reg) _,
                value = out(reg) _,
                log = const LOG,
                unused_half = const UNUSED_HALF,
                options(nostack),
            );
        }
    }

    /// Never called: without restartable sequences no ledger opens with this protocol.
    ///
    /// # Safety
    /// None to keep.
    #[cfg(not(all(
        target_os = "linux",
        target_arch = "x86_64",
        not(any(miri, plimsoll_portable))
    )))]
    pub(crate) unsafe fn record_pair(&self, _: &AtomicUsize, _: *mut Area, _: [(usize, u64); 2]) {}

    /// Never called: without restartable sequences no ledger opens with this protocol.
    ///
    /// # Safety
    /// None to keep.
    #[cfg(not(all(
        target_os = "linux",
        target_arch = "x86_64",
        not(any(miri, plimsoll_portable))
    )))]
    pub(crate) unsafe fn record(&self, _: &AtomicUsize, _: *mut Area, _: &[(usize, u64)]) {}

    /// The words and the log of a shard in a generation.
    fn frozen(&self, row: usize, cpu: usize, generation: Generation) -> (&[AtomicU64], &Log) {
        let shard = self.base.load(Ordering::Acquire) + row + cpu * SHARD_BYTES;
        let address = shard + generation.index() * GENERATION_BYTES;
        // SAFETY: within the mapping made by `open`, which stays for good; words and log are
        // atomics. The scratch word lies between the delta and the log.
        unsafe {
            let words = std::slice::from_raw_parts(address as *const AtomicU64, LOG / 8);
            (words, &*((address + LOG) as *const Log))
        }
    }
}

/// What the sequence reads: positions of words packed as in [`Log`], then what to add to each.
#[repr(C)]
struct Operation {
    words: [u16; MAX_ENTRIES],
    amounts: [u64; MAX_ENTRIES],
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
