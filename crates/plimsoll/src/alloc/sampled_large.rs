//! A table of the program's large blocks that were sampled.
//!
//! Blocks above [`size_class::LARGEST`] stay in the program's allocator, which may treat them
//! specially. A hash table of fixed size holds the addresses of the sampled ones; only frees of
//! large blocks search it. Each address has three lines of eight possible places. A compare-and-swap
//! takes a place, and a store frees it: no locks, no tombstones.
//!
//! The first lines of neighbouring addresses lie on one page, so that a search touches little memory: in a
//! forked child, each page that its parent did not touch is a page fault. The other two, which are anywhere,
//! are used where a first line is full, and searched only if that ever happened.

use plimsoll_sys::os::region::{PAGE, Region};
use plimsoll_sys::primitives::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sampler::{AllocatedAt, Sample, Weight};
use crate::stack::{Bucket, CycleNumber};

#[cfg(doc)]
use crate::size_class;

/// Lines of the table; a power of two. They hold 131072 blocks, which at the default rate stand for
/// 70 GB or more.
const LINES: usize = 1 << 14;

/// Places, whose addresses take a cache line, with their notes on the same page.
#[repr(C, align(256))]
struct Line {
    addresses: [AtomicUsize; 8],
    notes: [NoteEntry; 8],
}

const _: () = assert!(size_of::<Line>() == 256);

#[repr(C)]
struct NoteEntry {
    bucket: AtomicU32,
    cycle: AtomicU32,
    weight: AtomicU64,
    born: AtomicU64,
}

/// The table of lines.
pub(super) struct SampledLarge {
    region: Region,
    /// The number of blocks in the table: while it is 0, frees skip the search.
    blocks: AtomicUsize,
    /// Whether a block was ever noted in another line than its first.
    uses_other_lines: AtomicBool,
}

/// The table of the process.
pub(super) static SAMPLED_LARGE: SampledLarge = SampledLarge::new();

impl SampledLarge {
    const fn new() -> Self {
        Self {
            region: Region::new(),
            blocks: AtomicUsize::new(0),
            uses_other_lines: AtomicBool::new(false),
        }
    }

    /// Reserves the table's memory. Called once; if it fails, nothing is ever noted.
    pub(super) fn open(&self) {
        let bytes = LINES * size_of::<Line>();
        self.region.reserve(bytes, bytes);
    }

    /// Makes the table's memory accessible. Returns false if the system refuses.
    pub(super) fn commit(&self) -> bool {
        self.region.commit(self.region.length()) && self.region.length() != 0
    }

    /// Bytes of memory made accessible for the table.
    pub(super) fn bytes(&self) -> usize {
        self.region.committed()
    }

    /// Notes the sample of the block at an address. Returns false if no place is free.
    pub(super) fn note(&self, address: usize, sample: Sample) -> bool {
        if !self.commit() {
            return false;
        }
        // A thread that frees the block receives its address from this thread after all these stores.
        for (turn, line) in lines_of(address).into_iter().enumerate() {
            if turn == 1 {
                self.uses_other_lines.store(true, Ordering::Relaxed);
            }
            let line = self.line(line);
            for (place, entry) in line.addresses.iter().zip(&line.notes) {
                // Not read first: on a page without memory, that would be one more page fault.
                if place
                    .compare_exchange(0, address, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
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
        let lines = lines_of(address);
        let searched = match self.uses_other_lines.load(Ordering::Relaxed) {
            true => &lines[..],
            false => &lines[..1],
        };
        for &line in searched {
            let line = self.line(line);
            for (place, entry) in line.addresses.iter().zip(&line.notes) {
                if place.load(Ordering::Relaxed) == address {
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
}

/// Blocks in the same piece of memory of so many bytes have the same first line: at most four blocks above
/// [`size_class::LARGEST`], or any number of smaller ones of a redirected allocator.
const PIECE: usize = 1 << 17;

/// The lines on a page: the first lines of consecutive pieces.
const LINES_ON_PAGE: usize = PAGE / size_of::<Line>();

/// Returns the three lines in which an address may be.
fn lines_of(address: usize) -> [usize; 3] {
    let piece = address / PIECE;
    let page = (mixed(piece / LINES_ON_PAGE) >> 48) as usize % (LINES / LINES_ON_PAGE);
    let anywhere = mixed(address >> 4);
    let [second, third] = [48, 32].map(|shift| (anywhere >> shift) as usize & (LINES - 1));
    [page * LINES_ON_PAGE + piece % LINES_ON_PAGE, second, third]
}

fn mixed(number: usize) -> u64 {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        // 10 MB, of which a page has the first lines of 2 MiB.
        let pages: std::collections::HashSet<usize> = (0..100)
            .map(|block| lines_of(0x5555_5550_0010 + block * 100_000)[0] / LINES_ON_PAGE)
            .collect();
        assert!(pages.len() <= 6, "{pages:?}");
        let table = SampledLarge::new();
        table.open();
        for block in 0..100 {
            assert!(table.note(0x5555_5550_0010 + block * 100_000, sample(block as u64)));
        }
        assert!(!table.uses_other_lines.load(Ordering::Relaxed));
    }

    /// Small blocks are noted here under a redirected allocator. If all of them are sampled, the first lines are
    /// full at once.
    #[test]
    fn most_places_can_be_used_by_small_blocks_that_lie_close_together() {
        let table = SampledLarge::new();
        table.open();
        let noted = |block: &u64| table.note(*block as usize * 64, sample(*block));
        assert_eq!((1..=90_000).filter(|block| !noted(block)).count(), 0);
        for block in 1..=90_000u64 {
            assert_eq!(table.take(block as usize * 64), Some(sample(block)));
        }
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
