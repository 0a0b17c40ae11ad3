//! A table of the program's large blocks that were sampled.
//!
//! Blocks above [`size_class::LARGEST`] stay in the program's allocator, which may treat them
//! specially. A hash table of fixed size holds the addresses of the sampled ones; only frees of
//! large blocks search it. Each address has two lines of eight possible places. A compare-and-swap
//! takes a place, and a store frees it: no locks, no tombstones.
//!
//! The first lines of neighbouring addresses lie on one page, so that a search touches little memory: in a
//! forked child, each page that its parent did not touch is a page fault. The second lines, which are
//! anywhere, are searched only if one was ever used.

use plimsoll_sys::os::region::{PAGE, Region};
use plimsoll_sys::primitives::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sampler::{AllocatedAt, Sample, Weight};
use crate::stack::{Bucket, CycleNumber};

#[cfg(doc)]
use crate::size_class;

/// Lines of the table; a power of two. They hold 131072 blocks, which at the default rate stand for
/// 70 GB or more.
const LINES: usize = 1 << 14;

/// The places in a cache line.
#[repr(C, align(64))]
struct Line {
    addresses: [AtomicUsize; 8],
}

#[repr(C)]
struct NoteEntry {
    bucket: AtomicU32,
    cycle: AtomicU32,
    weight: AtomicU64,
    born: AtomicU64,
}

/// The table: lines, then a note for each place.
pub(super) struct SampledLarge {
    region: Region,
    /// The number of blocks in the table: while it is 0, frees skip the search.
    blocks: AtomicUsize,
    /// Whether a block was ever noted in its second line.
    uses_second_lines: AtomicBool,
}

/// The table of the process.
pub(super) static SAMPLED_LARGE: SampledLarge = SampledLarge::new();

impl SampledLarge {
    const fn new() -> Self {
        Self {
            region: Region::new(),
            blocks: AtomicUsize::new(0),
            uses_second_lines: AtomicBool::new(false),
        }
    }

    /// Reserves the table's memory. Called once; if it fails, nothing is ever noted.
    pub(super) fn open(&self) {
        let bytes = LINES * (size_of::<Line>() + 8 * size_of::<NoteEntry>());
        self.region.reserve(bytes, bytes);
    }

    /// Bytes of memory made accessible for the table.
    pub(super) fn bytes(&self) -> usize {
        self.region.committed()
    }

    /// Notes the sample of the block at an address. Returns false if no place is free.
    pub(super) fn note(&self, address: usize, sample: Sample) -> bool {
        if !self.region.commit(self.region.length()) || self.region.length() == 0 {
            return false;
        }
        for (turn, line) in lines_of(address).into_iter().enumerate() {
            if turn == 1 {
                // A thread that frees the block received its address from this thread after this.
                self.uses_second_lines.store(true, Ordering::Relaxed);
            }
            for (at, place) in self.line(line).addresses.iter().enumerate() {
                if place.load(Ordering::Relaxed) == 0
                    && place
                        .compare_exchange(0, address, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    // The same holds for this.
                    let entry = self.entry(line, at);
                    entry.bucket.store(sample.bucket.0, Ordering::Relaxed);
                    entry.cycle.store(sample.cycle.0, Ordering::Relaxed);
                    entry.weight.store(sample.weight.0, Ordering::Relaxed);
                    entry.born.store(sample.born.0, Ordering::Relaxed);
                    self.blocks.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }

    /// Removes a block's sample from the table and returns it; `None` if it was not sampled. Call
    /// it before another thread can receive the address.
    #[inline]
    pub(super) fn take(&self, address: usize) -> Option<Sample> {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            None
        } else {
            self.find(address)
        }
    }

    fn find(&self, address: usize) -> Option<Sample> {
        let lines = match self.uses_second_lines.load(Ordering::Relaxed) {
            true => 2,
            false => 1,
        };
        for line in lines_of(address).into_iter().take(lines) {
            for (at, place) in self.line(line).addresses.iter().enumerate() {
                if place.load(Ordering::Relaxed) == address {
                    let entry = self.entry(line, at);
                    let sample = Sample {
                        bucket: Bucket(entry.bucket.load(Ordering::Relaxed)),
                        cycle: CycleNumber(entry.cycle.load(Ordering::Relaxed)),
                        weight: Weight(entry.weight.load(Ordering::Relaxed)),
                        born: AllocatedAt(entry.born.load(Ordering::Relaxed)),
                    };
                    place.store(0, Ordering::Release);
                    self.blocks.fetch_sub(1, Ordering::Relaxed);
                    return Some(sample);
                }
            }
        }
        None
    }

    fn line(&self, line: usize) -> &Line {
        // SAFETY: `note` committed the whole table before it counted a block, and only then is it
        // searched.
        unsafe { &*(self.region.base() as *const Line).add(line) }
    }

    fn entry(&self, line: usize, at: usize) -> &NoteEntry {
        let entries = self.region.base() + LINES * size_of::<Line>();
        // SAFETY: `note` committed the whole table before it counted a block, and only then is it
        // searched.
        unsafe { &*(entries as *const NoteEntry).add(8 * line + at) }
    }
}

/// The bytes of memory whose blocks have the same first line, and the lines of neighbouring ones on a page.
/// At most four blocks above [`size_class::LARGEST`] begin in such a piece.
const PIECE: usize = 1 << 17;
const NEIGHBOURS: usize = PAGE / size_of::<Line>();

/// Returns the two lines in which an address may be.
fn lines_of(address: usize) -> [usize; 2] {
    let piece = address / PIECE;
    let page = mixed(piece / NEIGHBOURS) % (LINES / NEIGHBOURS);
    let first = page * NEIGHBOURS + piece % NEIGHBOURS;
    [first, mixed(address >> 4) % LINES]
}

fn mixed(number: usize) -> usize {
    ((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u64) -> Sample {
        Sample {
            bucket: Bucket(number as u32),
            cycle: CycleNumber(number as u32 / 2),
            born: AllocatedAt(number + 7),
            weight: Weight(number + 7),
        }
    }

    #[test]
    fn the_table_holds_exactly_the_noted_blocks() {
        let table = SampledLarge::new();
        table.open();
        assert_eq!(table.take(0x1000), None);
        for block in 1..=50_000u64 {
            assert!(table.note(block as usize * 0x9000, sample(block)));
        }
        for block in (1..=50_000u64).rev() {
            let address = block as usize * 0x9000;
            assert_eq!(table.take(address), Some(sample(block)));
            assert_eq!(table.take(address), None);
        }
        assert_eq!(table.blocks.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn blocks_of_a_program_with_some_mib_touch_few_pages() {
        let pages: std::collections::HashSet<usize> = (0..100)
            .map(|block| lines_of(0x5555_5550_0010 + block * 100_000)[0] / NEIGHBOURS)
            .collect();
        assert!(pages.len() <= 3, "{pages:?}");
        let table = SampledLarge::new();
        table.open();
        for block in 0..100 {
            assert!(table.note(0x5555_5550_0010 + block * 100_000, sample(block as u64)));
        }
        assert!(!table.uses_second_lines.load(Ordering::Relaxed));
    }

    #[test]
    fn a_full_table_refuses_blocks_and_keeps_its_entries() {
        let table = SampledLarge::new();
        table.open();
        let mut noted = Vec::new();
        let mut refused = 0;
        for block in 1..200_000u64 {
            if table.note(block as usize * 0x10_000, sample(block)) {
                noted.push(block);
            } else {
                refused += 1;
            }
        }
        assert!(refused > 0 && noted.len() <= 8 * LINES);
        assert!(
            noted.len() > 8 * LINES / 2,
            "most places can be used: {}",
            noted.len()
        );
        for block in noted {
            assert_eq!(table.take(block as usize * 0x10_000), Some(sample(block)));
        }
    }

    #[test]
    fn a_table_without_memory_refuses() {
        let table = SampledLarge::new();
        assert!(!table.note(0x1000, sample(1)));
        assert_eq!(table.take(0x1000), None);
    }
}
