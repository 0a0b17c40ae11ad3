//! A table of the sampled blocks that stay in the program's allocator.
//!
//! In a program with [`Alloc`](super::Alloc), these are the blocks above [`size_class::LARGEST`], which the allocator
//! may treat specially. In a preloaded library, they are all sampled blocks: the program may release a block by a way
//! that does not pass the library, so each block must be the allocator's. The record of such a block stays until its
//! address is released or sampled again.
//!
//! # Structure
//! A *line* has seven places, for addresses that lie close together. A block is in its first line or, if that is full,
//! in one of the two lines that each *overflow table* has for it. Overflow tables are made when they are needed; each
//! has twice the lines of the one before. The first lines of neighbouring addresses lie on one page, so that a search
//! touches little memory: in a forked child, each page that its parent did not touch is a page fault.
//!
//! [`FILTER`] counts the blocks by some bits of their addresses. A free whose count is 0 needs no search.
//!
//! # Concurrency
//! A compare-and-swap takes a place, and a store frees it: no locks, no tombstones. A thread that frees a block receives
//! its address from the thread that noted it, after all stores of that.

use plimsoll_sys::os::region::{self, PAGE, Region};
use plimsoll_sys::primitives::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use crate::sampler::{AllocatedAt, Sample, Weight};
use crate::stack::{Bucket, CycleNumber};

#[cfg(doc)]
use plimsoll_ledger::size_class;

/// The number of first lines; a power of two.
const LINES: usize = 1 << 14;

/// The number of places in a line.
const PLACES: usize = 7;

/// The most overflow tables. Together they have places for more blocks than fit into memory.
const MAX_TABLES: usize = 16;

/// The number of lines of the first overflow table; a power of two.
const FIRST_LINES: usize = 1 << 12;

/// Places, whose addresses take a cache line, with their notes on the same page.
#[repr(C, align(256))]
struct Line {
    addresses: [AtomicUsize; PLACES],
    sizes: [AtomicU32; PLACES],
    buckets: [AtomicU32; PLACES],
    cycles: [AtomicU32; PLACES],
    weights: [AtomicU64; PLACES],
    born: [AtomicU64; PLACES],
}

const _: () = assert!(size_of::<Line>() == 256);

/// A sample that was noted, with the size of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    pub(super) sample: Sample,
    size: SizeCode,
}

impl Noted {
    /// Returns the size in bytes at which the block was noted, if it is another than `now`: then the block at this address
    /// is not the one that was noted. Otherwise returns `now`.
    pub(super) fn size(&self, now: usize) -> usize {
        match SizeCode::new(now) == self.size {
            true => now,
            false => self.size.bytes(),
        }
    }
}

impl Noted {
    /// Returns the size in bytes at which the block was noted.
    pub(super) fn bytes(&self) -> usize {
        self.size.bytes()
    }

    /// Records the free of a block of `now` bytes at this address.
    pub fn record_free(&self, now: usize, is_temporary: bool) {
        self.sample.record_free(self.size(now), is_temporary);
    }

    /// Records that a block of `now` bytes replaces this one.
    pub fn record_replaced(&self, now: usize) {
        self.sample.record_replaced(self.size(now));
    }
}

/// The size of a block: exact below 2 GiB, and in units of 4 KiB above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SizeCode(u32);

impl SizeCode {
    const IN_PAGES: u32 = 1 << 31;

    fn new(bytes: usize) -> Self {
        match u32::try_from(bytes) {
            Ok(exact) if exact < Self::IN_PAGES => Self(exact),
            _ => Self(Self::IN_PAGES | (bytes >> 12).min((Self::IN_PAGES - 1) as usize) as u32),
        }
    }

    fn bytes(self) -> usize {
        match self.0 & Self::IN_PAGES {
            0 => self.0 as usize,
            _ => ((self.0 & !Self::IN_PAGES) as usize) << 12,
        }
    }
}

/// The counts of noted blocks by bits of their addresses. A count that has reached its maximum stays.
static FILTER: [AtomicU8; FILTERED] = [const { AtomicU8::new(0) }; FILTERED];

/// The number of counts: one page.
const FILTERED: usize = 1 << 12;

/// Returns the count for an address: blocks are 16 bytes apart.
#[inline(always)]
fn filtered(address: usize) -> &'static AtomicU8 {
    &FILTER[address >> 4 & (FILTERED - 1)]
}

/// Returns whether the block at an address may be in the table. For the fast path of a free.
#[inline(always)]
pub fn may_have(address: usize) -> bool {
    filtered(address).load(Ordering::Relaxed) != 0
}

/// The table.
pub struct SampledInside {
    /// The first lines.
    region: Region,
    /// The addresses of the overflow tables; 0 for those that do not exist.
    tables: [AtomicUsize; MAX_TABLES],
    /// Whether a block was ever noted in an overflow table.
    has_overflown: AtomicBool,
}

/// The table of the process.
pub static SAMPLED_INSIDE: SampledInside = SampledInside::new();

impl SampledInside {
    const fn new() -> Self {
        Self {
            region: Region::new(),
            tables: [const { AtomicUsize::new(0) }; MAX_TABLES],
            has_overflown: AtomicBool::new(false),
        }
    }

    /// Reserves memory for the first lines. Called once; if it fails, all blocks are in overflow tables.
    pub(super) fn open(&self) {
        let bytes = LINES * size_of::<Line>();
        self.region.reserve(bytes, bytes);
    }

    /// Makes the first lines accessible. Returns false if the system refuses.
    pub(super) fn commit(&self) -> bool {
        self.region.commit(self.region.length()) && self.region.length() != 0
    }

    /// Bytes of memory made accessible for the table.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.tables.iter().enumerate();
        let others = tables.filter(|(_, table)| table.load(Ordering::Relaxed) != 0);
        self.region.committed() + others.map(|(number, _)| bytes_of(number)).sum::<usize>()
    }

    /// Notes the sample of a block of `size` bytes. Returns false if there is no memory for it. The address must not be in
    /// the table.
    pub(super) fn note(&self, address: usize, size: usize, sample: Sample) -> bool {
        let size = SizeCode::new(size);
        let noted = Noted { sample, size };
        if self.commit() && self.first_line(address).note(address, &noted) {
            return true;
        }
        self.has_overflown.store(true, Ordering::Relaxed);
        for number in 0..MAX_TABLES {
            let Some(table) = self.table(number).or_else(|| self.add_table(number)) else {
                return false;
            };
            if table
                .lines_of(address)
                .into_iter()
                .any(|line| line.note(address, &noted))
            {
                return true;
            }
        }
        false
    }

    /// Removes a block's sample from the table and returns it; `None` if it was not sampled. Call
    /// it before another thread can receive the address.
    #[inline]
    pub fn take(&self, address: usize) -> Option<Noted> {
        if may_have(address) {
            self.find(address)
        } else {
            None
        }
    }

    #[cold]
    fn find(&self, address: usize) -> Option<Noted> {
        if self.region.committed() != 0 {
            if let Some(noted) = self.first_line(address).take(address) {
                return Some(noted);
            }
        }
        if !self.has_overflown.load(Ordering::Relaxed) {
            return None;
        }
        let tables = (0..MAX_TABLES).map_while(|number| self.table(number));
        tables
            .flat_map(|table| table.lines_of(address))
            .find_map(|line| line.take(address))
    }

    /// Visits the addresses of all noted blocks, with their samples. Blocks that come or go meanwhile may be missing. Not
    /// for hooks.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, &Noted)) {
        let first = match self.region.committed() {
            0 => None,
            _ => Some((self.region.base(), LINES)),
        };
        let others = (0..MAX_TABLES).map_while(|number| self.table(number));
        let others = others.map(|table| (table.base, FIRST_LINES << table.number));
        for (base, lines) in first.into_iter().chain(others) {
            // SAFETY: there are this many lines, which are never unmapped.
            let lines = unsafe { std::slice::from_raw_parts(base as *const Line, lines) };
            for line in lines {
                for at in 0..PLACES {
                    let address = line.addresses[at].load(Ordering::Acquire);
                    let noted = line.noted(at);
                    fence(Ordering::Acquire);
                    // Otherwise the place may have another block's sample now.
                    if address != 0 && line.addresses[at].load(Ordering::Acquire) == address {
                        visit(address, &noted);
                    }
                }
            }
        }
    }

    fn first_line(&self, address: usize) -> &Line {
        let piece = address / PIECE;
        let page = (mixed(piece / LINES_ON_PAGE) >> 48) as usize % (LINES / LINES_ON_PAGE);
        let line = page * LINES_ON_PAGE + piece % LINES_ON_PAGE;
        // SAFETY: the callers have committed the whole region, which has this many lines.
        unsafe { &*(self.region.base() as *const Line).add(line) }
    }

    fn table(&self, number: usize) -> Option<Table> {
        let base = self.tables[number].load(Ordering::Acquire);
        (base != 0).then_some(Table { number, base })
    }

    /// Makes an overflow table. Makes a system call, as the underlying allocator does for more memory.
    #[cold]
    fn add_table(&self, number: usize) -> Option<Table> {
        let bytes = bytes_of(number);
        let base = region::map_within_limit(bytes)?;
        let stored =
            self.tables[number].compare_exchange(0, base, Ordering::AcqRel, Ordering::Acquire);
        if stored.is_err() {
            // SAFETY: the memory was mapped above, and no other thread knows it.
            unsafe { region::unmap(base, bytes) };
            return self.table(number);
        }
        region::note(base, bytes);
        Some(Table { number, base })
    }
}

/// An overflow table.
#[derive(Clone, Copy)]
struct Table {
    number: usize,
    base: usize,
}

/// The bytes of an overflow table.
fn bytes_of(number: usize) -> usize {
    (FIRST_LINES << number) * size_of::<Line>()
}

impl Table {
    /// Returns the two lines in which an address may be.
    fn lines_of(self, address: usize) -> [&'static Line; 2] {
        let lines = FIRST_LINES << self.number;
        let hash = mixed(address >> 4);
        [hash >> 32, hash >> 16].map(|hash| {
            let line = hash as usize & (lines - 1);
            // SAFETY: the table has this many lines, and is never unmapped.
            unsafe { &*(self.base as *const Line).add(line) }
        })
    }
}

impl Line {
    /// Takes a place for a block. Returns false if all are taken.
    fn note(&self, address: usize, noted: &Noted) -> bool {
        // Not read first: on a page without memory, that would be one more page fault.
        let is_taken = |place: &AtomicUsize| {
            place
                .compare_exchange(0, address, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let Some(at) = self.addresses.iter().position(is_taken) else {
            return false;
        };
        let Sample {
            bucket,
            weight,
            cycle,
            born,
        } = noted.sample;
        self.sizes[at].store(noted.size.0, Ordering::Relaxed);
        self.buckets[at].store(bucket.0, Ordering::Relaxed);
        self.cycles[at].store(cycle.0, Ordering::Relaxed);
        self.weights[at].store(weight.0, Ordering::Relaxed);
        self.born[at].store(born.0, Ordering::Relaxed);
        let more = |count: u8| count.checked_add(1);
        let _ = filtered(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        true
    }

    fn take(&self, address: usize) -> Option<Noted> {
        let mut places = self.addresses.iter();
        let at = places.position(|place| place.load(Ordering::Relaxed) == address)?;
        let noted = self.noted(at);
        self.addresses[at].store(0, Ordering::Release);
        let fewer = |count: u8| (count != u8::MAX).then(|| count.saturating_sub(1));
        let _ = filtered(address).fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        Some(noted)
    }

    /// Returns the sample of a place in use.
    #[inline]
    fn noted(&self, at: usize) -> Noted {
        Noted {
            sample: Sample {
                bucket: Bucket(self.buckets[at].load(Ordering::Relaxed)),
                cycle: CycleNumber(self.cycles[at].load(Ordering::Relaxed)),
                weight: Weight(self.weights[at].load(Ordering::Relaxed)),
                born: AllocatedAt(self.born[at].load(Ordering::Relaxed)),
            },
            size: SizeCode(self.sizes[at].load(Ordering::Relaxed)),
        }
    }
}

/// Blocks in the same piece of memory of so many bytes have the same first line.
const PIECE: usize = 1 << 17;

/// The lines on a page: the first lines of consecutive pieces.
const LINES_ON_PAGE: usize = PAGE / size_of::<Line>();

fn mixed(number: usize) -> u64 {
    (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Tests share the filter, whose counts are exact only while none has reached its maximum.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open() -> SampledInside {
        let table = SampledInside::new();
        table.open();
        table
    }

    fn noted(number: u64) -> Noted {
        let sample = Sample {
            bucket: Bucket(number as u32),
            cycle: CycleNumber(number as u32 / 2),
            born: AllocatedAt(number + 7),
            weight: Weight(number + 7),
        };
        let size = SizeCode::new(number as usize * 8);
        Noted { sample, size }
    }

    fn note(table: &SampledInside, address: usize, number: u64) -> bool {
        table.note(address, number as usize * 8, noted(number).sample)
    }

    #[test]
    fn the_table_holds_exactly_the_noted_blocks() {
        let _alone = alone();
        let table = open();
        assert_eq!(table.take(0x1000), None);
        for block in 1..=50_000u64 {
            assert!(note(&table, block as usize * 0x9000, block));
        }
        for block in (1..=50_000u64).rev() {
            let address = block as usize * 0x9000;
            assert_eq!(table.take(address), Some(noted(block)));
            assert_eq!(table.take(address), None);
        }
    }

    #[test]
    fn the_filter_shows_each_noted_block_and_few_others() {
        let _alone = alone();
        let table = open();
        // Addresses that no other test uses, of which each has another count.
        let address = |block: usize| 0x7000_0000_0000 + block * 0x10;
        let before: Vec<bool> = (0..FILTERED)
            .map(|block| may_have(address(block)))
            .collect();
        for block in (0..FILTERED).step_by(2) {
            assert!(note(&table, address(block), 1));
        }
        for (block, before) in before.iter().enumerate() {
            assert_eq!(
                may_have(address(block)),
                *before || block % 2 == 0,
                "{block}"
            );
        }
        for block in (0..FILTERED).step_by(2) {
            assert!(table.take(address(block)).is_some());
        }
        for (block, before) in before.into_iter().enumerate() {
            assert_eq!(may_have(address(block)), before, "{block}");
        }
    }

    #[test]
    fn blocks_of_a_program_with_some_mib_touch_few_pages() {
        let _alone = alone();
        let table = open();
        assert!(table.commit());
        let base = table.region.base();
        // 10 MB, of which a page has the first lines of 2 MiB.
        let address = |block: usize| 0x5555_5550_0010 + block * 100_000;
        let page =
            |block| (std::ptr::from_ref(table.first_line(address(block))) as usize - base) / PAGE;
        let pages: std::collections::HashSet<usize> = (0..100).map(page).collect();
        assert!(pages.len() <= 6, "{pages:?}");
        for block in 0..100 {
            assert!(note(&table, address(block), block as u64));
        }
        assert!(!table.has_overflown.load(Ordering::Relaxed));
        for block in 0..100 {
            assert!(table.take(address(block)).is_some());
        }
    }

    /// As if all blocks of a program are sampled.
    #[test]
    fn a_million_small_blocks_that_lie_close_together_are_all_noted() {
        let _alone = alone();
        let table = open();
        for block in 1..=1_000_000u64 {
            assert!(note(&table, block as usize * 32, block));
        }
        // Each place takes a seventh of a line, and the last table is half full.
        assert!(table.bytes() < 150_000_000, "{}", table.bytes());
        for block in 1..=1_000_000u64 {
            assert_eq!(table.take(block as usize * 32), Some(noted(block)));
        }
    }

    #[test]
    fn threads_that_note_and_take_at_once_lose_nothing() {
        let _alone = alone();
        let table = open();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    let address = |block: usize| 0x10_0000 + (block * 4 + thread) * 48;
                    for round in 1..5 {
                        for block in 0..20_000 {
                            assert!(note(table, address(block), (block * round) as u64));
                        }
                        for block in 0..20_000 {
                            let found = table.take(address(block));
                            assert_eq!(found, Some(noted((block * round) as u64)));
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_size_that_changed_is_that_of_the_noted_block() {
        for (noted, now, counted) in [
            (100, 100, 100),
            (100, 200, 100),
            (3 << 31, 3 << 31, 3 << 31),
            ((3 << 31) + 5, (3 << 31) + 5, (3 << 31) + 5),
            (3 << 31, 100, 3 << 31),
        ] {
            let block = Noted {
                sample: self::noted(1).sample,
                size: SizeCode::new(noted),
            };
            assert_eq!(block.size(now), counted);
        }
    }

    #[test]
    fn a_table_without_first_lines_uses_others() {
        let _alone = alone();
        let table = SampledInside::new();
        assert!(note(&table, 0x1000, 1));
        assert_eq!(table.take(0x1000), Some(noted(1)));
        assert_eq!(table.take(0x1000), None);
    }
}
