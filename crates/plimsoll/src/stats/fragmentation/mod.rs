//! Memory in the allocator's pages that is in no block of the program's, by the size of blocks.
//!
//! A page, or a slab, that has one block left in it is as much memory as one that is full. Only the
//! allocator knows its pages; it is asked by [`Backend::visit_classes`](super::Backend). What the
//! program has in blocks is in the ledger. Both count by classes of sizes, which are not the same,
//! so rows are of as many of the allocator's classes as are the ledger's together.

mod table;

use std::fmt;

use super::backend::{SizeClass, backend};
use super::{HeapStats, heap_stats};
use crate::alloc::size_class::{self, LARGEST};
use crate::own;
use crate::primitives::{AtomicU32, Ordering};
use crate::sampler::cell;
use crate::stack::{Kind, Record, TABLE};

/// What the allocator's pages have room for beyond the program's blocks. Made by
/// [`fragmentation()`]; its `Display` is a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fragmentation {
    /// The name of the backend that has told.
    pub backend: &'static str,
    /// By the size of blocks, from the smallest. What there is nothing of is left out.
    pub classes: Vec<ClassSpace>,
    /// The program's blocks above 32 KiB, which may be in several of the classes. Exact.
    pub large: Live,
}

/// What an allocator has for blocks of some sizes, and what the program has of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassSpace {
    /// Blocks are larger than this, in bytes.
    pub above: usize,
    /// The largest block, in bytes; `usize::MAX` if there is no limit.
    pub largest: usize,
    /// Blocks that there is room for in these pages, a count; as the backend says, and so are the
    /// next three.
    pub room: u64,
    /// Blocks that are not free, a count, at most `room`. More than are live: allocators keep what
    /// was freed for the thread that did that, or until its own thread sees it.
    pub in_use: u64,
    /// Bytes of those, each as large as the allocator makes it.
    pub in_use_bytes: u64,
    /// Bytes of the pages.
    pub active: u64,
    /// Blocks of the program's, but for those that are in Plimsoll's memory because they were
    /// sampled. From the ledger, exact; read some microseconds later than the pages. `None` where
    /// the allocator's sizes and the ledger's do not end at the same.
    ///
    /// The program's requests are taken to be in the class that is for their size. Where more
    /// alignment is asked for than comes by itself, the allocator may take a larger one.
    pub live: Option<Live>,
}

/// Blocks of the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// How many.
    pub blocks: u64,
    /// Their bytes, as [`HeapStats`] counts them.
    pub bytes: u64,
}

/// Why there is nothing to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Untold {
    /// [`Alloc`](crate::Alloc) is not the program's allocator, or has no backend.
    NoBackend,
    /// The backend of this name cannot tell: it never can, or not as its allocator is set up.
    ByBackend(&'static str),
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBackend => f.write_str(
                "the program's allocator is not asked what is in its pages: it has no backend",
            ),
            Self::ByBackend(name) => write!(
                f,
                "the program's allocator, {name}, cannot tell what is in its pages"
            ),
        }
    }
}

impl std::error::Error for Untold {}

impl ClassSpace {
    /// Bytes of the pages that are in no block that the allocator has given out: free blocks, and
    /// what is at the ends.
    pub fn sparse(&self) -> u64 {
        self.active.saturating_sub(self.in_use_bytes)
    }

    /// Bytes of blocks that are not free and not the program's, and those by which blocks are
    /// longer than they count. Less than nothing where the program's have come since the pages were
    /// read, or are in another class for their alignment.
    pub fn kept(&self) -> Option<i64> {
        let live = self.live?;
        Some((self.in_use_bytes as i64).saturating_sub_unsigned(live.bytes))
    }

    fn of(above: usize) -> Self {
        Self {
            above,
            largest: above,
            room: 0,
            in_use: 0,
            in_use_bytes: 0,
            active: 0,
            live: None,
        }
    }

    fn add(&mut self, class: &SizeClass) {
        self.largest = class.largest;
        self.room += class.room;
        self.in_use += class.in_use;
        self.in_use_bytes += class.in_use_bytes;
        self.active += class.active;
    }

    /// Whether blocks of that size are in here.
    pub(crate) fn has(&self, size: u64) -> bool {
        size > self.above as u64 && size <= self.largest as u64
    }
}

impl Fragmentation {
    /// Bytes of all of these pages.
    pub fn active(&self) -> u64 {
        self.sum(|class| class.active)
    }

    /// Bytes of them that are in no block that the allocator has given out.
    pub fn sparse(&self) -> u64 {
        self.sum(ClassSpace::sparse)
    }

    fn sum(&self, of: impl Fn(&ClassSpace) -> u64) -> u64 {
        self.classes.iter().map(of).sum()
    }
}

/// Asks the allocator what its pages have room for beyond the program's blocks.
///
/// What the backend says of a class belongs together; classes are read one after another, while the
/// program goes on. [`Jemalloc`](mod@super::backend) makes a copy of its statistics for it, 9 us
/// and some locks for each of its arenas; [`MiMalloc`](mod@super::backend) looks at each of its
/// pages. So it is for people, and not for every second.
///
/// Not for signal handlers, and not for hooks.
///
/// # Errors
/// [`Untold`], if there is nobody who can tell: the C library's allocator never can.
pub fn fragmentation() -> Result<Fragmentation, Untold> {
    let _own = own::scope();
    read().map(|(fragmentation, _)| fragmentation)
}

/// The same, with what was sampled of the program's blocks and is in use.
pub(crate) fn read() -> Result<(Fragmentation, Vec<Sampled>), Untold> {
    let backend = backend().ok_or(Untold::NoBackend)?;
    let mut told = Vec::new();
    let is_told = backend.visit_classes(&mut |class| told.push(class));
    LAST.store(if is_told { TOLD } else { UNTOLD }, Ordering::Relaxed);
    if !is_told {
        return Err(Untold::ByBackend(backend.name()));
    }
    let heap = heap_stats();
    let sampled = sampled();
    let fragmentation = Fragmentation {
        backend: backend.name(),
        classes: rows(&told, &heap, &sampled),
        large: Live {
            blocks: heap.large.mallocs.saturating_sub(heap.large.frees),
            bytes: heap
                .large
                .malloc_bytes
                .saturating_sub(heap.large.free_bytes),
        },
    };
    Ok((fragmentation, sampled))
}

/// Nobody has asked.
const UNASKED: u32 = 0;
const TOLD: u32 = 1;
const UNTOLD: u32 = 2;

/// How it was answered the last time.
static LAST: AtomicU32 = AtomicU32::new(UNASKED);

/// Whether there is somebody who can tell. Asked for once at most: that takes a while.
pub(crate) fn can_be_told() -> bool {
    match LAST.load(Ordering::Relaxed) {
        UNASKED => read().is_ok(),
        last => last == TOLD,
    }
}

/// Blocks of one size and one place that were sampled and are in use.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    pub(crate) record: Record,
    /// How many were sampled.
    pub(crate) samples: u64,
    /// What they stand for, in units of 2^-16 blocks.
    pub(crate) weight: u64,
}

fn sampled() -> Vec<Sampled> {
    let mut sampled = Vec::new();
    TABLE.read(Kind::Heap, |record| {
        let in_use = |of: usize, freed: usize| record.cells[of].wrapping_sub(record.cells[freed]);
        let samples = in_use(cell::MALLOCS, cell::FREES);
        let weight = in_use(cell::MALLOC_WEIGHT, cell::FREE_WEIGHT);
        if samples > 0 {
            sampled.push(Sampled {
                record,
                samples,
                weight,
            });
        }
    });
    sampled
}

/// Whether a class of the ledger ends with this size.
fn is_boundary(size: usize) -> bool {
    size == 0 || (size <= LARGEST && size_class::counted_size(size) == size)
}

fn rows(told: &[SizeClass], heap: &HeapStats, sampled: &[Sampled]) -> Vec<ClassSpace> {
    let mut rows = Vec::new();
    let mut row = ClassSpace::of(0);
    for (at, class) in told.iter().enumerate() {
        row.add(class);
        let is_last = at + 1 == told.len();
        if is_boundary(class.largest) || class.largest > LARGEST || is_last {
            row.live = live(&row, heap, sampled);
            let has_none = row.live.is_none_or(|live| live.blocks == 0);
            if row.room > 0 || !has_none {
                rows.push(row);
            }
            row = ClassSpace::of(class.largest);
        }
    }
    rows
}

/// What of the program's blocks is in these sizes, and not in Plimsoll's memory.
fn live(row: &ClassSpace, heap: &HeapStats, sampled: &[Sampled]) -> Option<Live> {
    let has_large = row.largest == usize::MAX;
    if !is_boundary(row.above) || !(has_large || is_boundary(row.largest)) {
        return None;
    }
    let mut live = Live::default();
    let classes = heap.by_class.iter();
    for class in classes.filter(|class| row.has(class.size as u64)) {
        let blocks = class.mallocs.saturating_sub(class.frees);
        live.blocks += blocks;
        live.bytes += blocks * class.size as u64;
    }
    if has_large {
        live.blocks += heap.large.mallocs.saturating_sub(heap.large.frees);
        live.bytes += heap
            .large
            .malloc_bytes
            .saturating_sub(heap.large.free_bytes);
    }
    for sampled in sampled {
        let size = sampled.record.size;
        if size <= LARGEST as u64 && row.has(size) {
            // The profile was read after the ledger.
            let elsewhere = sampled.samples.min(live.blocks);
            live.blocks -= elsewhere;
            live.bytes = live.bytes.saturating_sub(elsewhere * size);
        }
    }
    Some(live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{ClassCounts, LargeCounts};

    fn class(largest: usize, room: u64, in_use: u64) -> SizeClass {
        SizeClass {
            largest,
            room,
            in_use,
            in_use_bytes: in_use * largest.min(40_000) as u64,
            active: room * largest.min(40_000) as u64 + 100,
        }
    }

    /// A ledger with some blocks of each of these sizes.
    fn ledger(sizes: &[(usize, u64)]) -> HeapStats {
        let mut heap = HeapStats {
            mallocs: 0,
            frees: 0,
            malloc_bytes: 0,
            free_bytes: 0,
            by_class: std::array::from_fn(|class| ClassCounts {
                size: size_class::size(class),
                ..ClassCounts::default()
            }),
            large: LargeCounts::default(),
            exact: true,
        };
        for &(size, blocks) in sizes {
            match size_class::of(size) {
                Some(class) => heap.by_class[class].mallocs += blocks,
                None => {
                    heap.large.mallocs += blocks;
                    heap.large.malloc_bytes += blocks * size as u64;
                }
            }
        }
        heap
    }

    fn sampled(size: u64, samples: u64) -> Sampled {
        Sampled {
            record: Record {
                size,
                labels: crate::label::Labels::NONE,
                stack: &[],
                cells: Default::default(),
                overflow: false,
                at_peak: [0; 2],
            },
            samples,
            weight: samples << 20,
        }
    }

    #[test]
    fn rows_end_where_the_ledgers_classes_end() {
        let told = [
            class(8, 0, 0),
            class(16, 100, 10),
            class(32, 50, 20),
            // The ledger has a class up to 2688.
            class(2048, 9, 9),
            class(2560, 8, 1),
            class(3072, 7, 2),
            class(32768, 4, 3),
            class(40960, 3, 2),
            class(usize::MAX, 2, 1),
        ];
        let heap = ledger(&[
            (16, 9),
            (24, 12),
            (32, 5),
            (2500, 2),
            (2900, 1),
            (33_000, 2),
            (99_000, 1),
        ]);
        let rows = rows(&told, &heap, &[sampled(24, 2), sampled(33_000, 2)]);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| {
                let live = row.live.map(|live| (live.blocks, live.bytes));
                (row.above, row.largest, row.room, row.in_use, live)
            })
            .collect();
        assert_eq!(
            shown,
            [
                (8, 16, 100, 10, Some((9, 144))),
                // What was sampled is not in the allocator's pages.
                (16, 32, 50, 20, Some((15, 10 * 24 + 5 * 32))),
                (32, 2048, 9, 9, Some((0, 0))),
                (2048, 3072, 15, 3, Some((3, 2 * 2688 + 3072))),
                (3072, 32_768, 4, 3, Some((0, 0))),
                // The ledger does not know which of its large blocks are here.
                (32_768, 40_960, 3, 2, None),
                (40_960, usize::MAX, 2, 1, None),
            ]
        );
        assert_eq!(rows[0].sparse(), 90 * 16 + 100);
        assert_eq!(rows[0].kept(), Some(16));
        assert_eq!(rows[5].kept(), None);
    }

    #[test]
    fn a_class_without_a_limit_has_all_large_blocks() {
        let told = [class(32_768, 0, 0), class(usize::MAX, 2, 2)];
        let rows = rows(&told, &ledger(&[(33_000, 2)]), &[sampled(33_000, 1)]);
        assert_eq!(rows.len(), 1);
        // Sampled ones of that size are where the others are.
        let live = Live {
            blocks: 2,
            bytes: 66_000,
        };
        assert_eq!(rows[0].live, Some(live));
    }

    #[test]
    fn live_blocks_without_room_for_them_are_shown() {
        let told = [class(16, 0, 0), class(usize::MAX, 0, 0)];
        let shown = rows(&told, &ledger(&[(16, 3)]), &[]);
        assert_eq!((shown[0].room, shown[0].kept()), (0, Some(-48)));
        assert!(rows(&told, &ledger(&[]), &[]).is_empty());
    }
}
