//! Memory in the allocator's pages that no block of the program occupies, by block size.
//!
//! A page or slab with a single block left takes as much memory as a full one. Only the allocator
//! knows its pages; [`Backend::visit_classes`](super::Backend) reports them. The ledger counts the
//! program's blocks. The two use different size classes, so a row merges the allocator's classes up
//! to the next size at which one of the ledger's classes ends.

mod table;

use std::fmt;

use plimsoll_sys::primitives::{AtomicU32, Ordering};

use super::{HeapStats, heap_stats};
use plimsoll_backend::backend::{SizeClass, backend};
use plimsoll_core::internal_scope;
use plimsoll_core::sampler::cell;
use plimsoll_core::stack::{Kind, Record, TABLE};
use plimsoll_ledger::size_class;
use plimsoll_ledger::size_class::LARGEST;

/// The space in the allocator's pages beyond the program's blocks. Returned by [`fragmentation()`];
/// its `Display` is a table.
///
/// ```
/// match plimsoll::stats::fragmentation() {
///     Ok(space) => {
///         println!("{space}");
///         assert!(space.sparse() <= space.active());
///     }
///     Err(unavailable) => println!("{unavailable}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fragmentation {
    /// The name of the reporting backend.
    pub backend: &'static str,
    /// Rows by block size, from the smallest. Rows without any space or block are left out.
    pub classes: Vec<ClassSpace>,
    /// The program's blocks above 32 KiB, which may be in several of the classes. Exact.
    pub large: Live,
}

/// The allocator's space for blocks of a range of sizes, and the program's blocks of these sizes.
///
/// ```
/// if let Ok(space) = plimsoll::stats::fragmentation() {
///     for class in &space.classes {
///         println!("{} bytes in use up to size {}", class.in_use_bytes, class.largest);
///         println!("{} bytes of the pages are free", class.sparse());
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassSpace {
    /// The exclusive lower limit of block sizes, in bytes.
    pub above: usize,
    /// The largest block size, in bytes; `usize::MAX` without a limit.
    pub largest: usize,
    /// The number of blocks that fit into these pages. As the backend reports it, as are the next
    /// three.
    pub room: u64,
    /// The number of blocks that are not free, at most `room`. More than the live blocks:
    /// allocators keep freed blocks in the freeing thread's cache, or until the owning thread
    /// collects them.
    pub in_use: u64,
    /// Bytes of those blocks, at the allocator's own sizes.
    pub in_use_bytes: u64,
    /// Bytes of the pages.
    pub active: u64,
    /// The program's live blocks, except sampled ones, which lie in Plimsoll's memory. From the
    /// ledger, exact; read some microseconds later than the pages. `None` if a limit of this row is
    /// not the end of one of the ledger's classes.
    ///
    /// A request counts in the class of its size. For an alignment larger than the class's natural
    /// one, the allocator may use a larger class.
    pub live: Option<Live>,
}

/// Live blocks of the program.
///
/// ```
/// if let Ok(space) = plimsoll::stats::fragmentation() {
///     let large = space.large;
///     println!("{} blocks above 32 KiB, of {} bytes", large.blocks, large.bytes);
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// The number of blocks.
    pub blocks: u64,
    /// Their bytes, as [`HeapStats`] counts them.
    pub bytes: u64,
}

/// Why no figures are available.
///
/// ```
/// use plimsoll::stats::{Unavailable, fragmentation};
///
/// match fragmentation() {
///     Ok(space) => println!("{} bytes are free", space.sparse()),
///     Err(Unavailable::NoBackend) => println!("the program does not use `plimsoll::Alloc`"),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unavailable {
    /// [`Alloc`](plimsoll_core::alloc::Alloc) is not the program's allocator, or has no backend.
    NoBackend,
    /// The backend of this name cannot report figures, never or not in its configuration.
    ByBackend(&'static str),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBackend => f.write_str(
                "the program's allocator reports nothing about its pages: no backend is set",
            ),
            Self::ByBackend(name) => write!(
                f,
                "the program's allocator, {name}, cannot report the contents of its pages"
            ),
        }
    }
}

impl std::error::Error for Unavailable {}

impl ClassSpace {
    /// Returns the bytes of the pages that are in no allocated block: free blocks, and unused ends
    /// of pages.
    pub fn sparse(&self) -> u64 {
        self.active.saturating_sub(self.in_use_bytes)
    }

    /// Returns the bytes of blocks that are neither free nor the program's, plus the bytes by which
    /// blocks exceed their counted size. Negative if the program allocated after the pages were
    /// read, or if alignment moved blocks to another class.
    pub fn kept(&self) -> Option<i64> {
        let live = self.live?;
        Some((self.in_use_bytes as i64).saturating_sub_unsigned(live.bytes))
    }

    fn new(above: usize) -> Self {
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
}

impl Fragmentation {
    /// Returns the bytes of all of these pages.
    pub fn active(&self) -> u64 {
        self.sum(|class| class.active)
    }

    /// Returns the bytes of the pages that are in no allocated block.
    pub fn sparse(&self) -> u64 {
        self.sum(ClassSpace::sparse)
    }

    fn sum(&self, of: impl Fn(&ClassSpace) -> u64) -> u64 {
        self.classes.iter().map(of).sum()
    }
}

/// Reads the space in the allocator's pages beyond the program's blocks.
///
/// The figures of one class are consistent; classes are read one after another while the program
/// runs. [`Jemalloc`](mod@plimsoll_backend::backend) copies its statistics first, which takes 9 us and some
/// locks for each of its arenas. [`MiMalloc`](mod@plimsoll_backend::backend) visits each of its pages. Read it
/// on demand, not every second.
///
/// Not for signal handlers, and not for hooks.
///
/// # Errors
/// [`Unavailable`], if no backend can report them; the C library's allocator never can.
pub fn fragmentation() -> Result<Fragmentation, Unavailable> {
    let _own = internal_scope::scope();
    read().map(|(fragmentation, _)| fragmentation)
}

/// Does the same, and also returns the program's sampled blocks that are in use.
pub fn read() -> Result<(Fragmentation, Vec<Sampled>), Unavailable> {
    let backend = backend().ok_or(Unavailable::NoBackend)?;
    let mut reported = Vec::new();
    let is_reported = backend.visit_classes(&mut |class| reported.push(class));
    LAST.store(
        if is_reported { AVAILABLE } else { UNAVAILABLE },
        Ordering::Relaxed,
    );
    if !is_reported {
        return Err(Unavailable::ByBackend(backend.name()));
    }
    let heap = heap_stats();
    let sampled = sampled();
    let fragmentation = Fragmentation {
        backend: backend.name(),
        classes: rows(&reported, &heap, &sampled),
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

/// Not yet determined.
const UNASKED: u32 = 0;
const AVAILABLE: u32 = 1;
const UNAVAILABLE: u32 = 2;

/// The outcome of the last reading.
static LAST: AtomicU32 = AtomicU32::new(UNASKED);

/// Returns whether a backend can report figures. Reads them if no reading was made before, which
/// takes a while.
pub fn is_available() -> bool {
    match LAST.load(Ordering::Relaxed) {
        UNASKED => read().is_ok(),
        last => last == AVAILABLE,
    }
}

/// Returns whether a row includes blocks of `size` bytes.
pub fn has(row: &ClassSpace, size: u64) -> bool {
    size > row.above as u64 && size <= row.largest as u64
}

/// Sampled blocks in use, of one size and one site.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The sampled allocation.
    pub record: Record,
    /// The number of samples.
    pub samples: u64,
    /// The sum of the samples' weights, in units of 2^-16 blocks.
    pub weight: u64,
}

/// Returns the program's sampled blocks in use, by size and site.
pub(crate) fn sampled() -> Vec<Sampled> {
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

/// Returns whether a class of the ledger ends with this size.
fn is_boundary(size: usize) -> bool {
    size == 0 || (size <= LARGEST && size_class::counted_size(size) == size)
}

fn rows(reported: &[SizeClass], heap: &HeapStats, sampled: &[Sampled]) -> Vec<ClassSpace> {
    let mut rows = Vec::new();
    let mut row = ClassSpace::new(0);
    for (at, class) in reported.iter().enumerate() {
        row.add(class);
        let is_last = at + 1 == reported.len();
        if is_boundary(class.largest) || class.largest > LARGEST || is_last {
            row.live = live(&row, heap, sampled);
            let has_none = row.live.is_none_or(|live| live.blocks == 0);
            if row.room > 0 || !has_none {
                rows.push(row);
            }
            row = ClassSpace::new(class.largest);
        }
    }
    rows
}

/// Returns the program's live blocks of the row's sizes that are not in Plimsoll's memory.
fn live(row: &ClassSpace, heap: &HeapStats, sampled: &[Sampled]) -> Option<Live> {
    let has_large = row.largest == usize::MAX;
    if !is_boundary(row.above) || !(has_large || is_boundary(row.largest)) {
        return None;
    }
    let mut live = Live::default();
    let classes = heap.by_class.iter();
    for class in classes.filter(|class| has(row, class.size as u64)) {
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
        if size <= LARGEST as u64 && has(row, size) {
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
    use plimsoll_core::alloc::counts::HeapDelta;
    use plimsoll_ledger::ledger::{Cut, Delta as _};

    use super::*;

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
        let mut delta = HeapDelta::ZERO;
        for &(size, blocks) in sizes {
            match size_class::of(size) {
                Some(class) => delta.mallocs[class] += blocks,
                None => {
                    delta.large_mallocs += blocks;
                    delta.large_malloc_bytes += blocks * size as u64;
                }
            }
        }
        HeapStats::from_cut(&Cut { delta, exact: true })
    }

    fn sampled(size: u64, samples: u64) -> Sampled {
        Sampled {
            record: Record {
                name: 0,
                size,
                labels: plimsoll_core::label::Labels::NONE,
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
        let reported = [
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
        let rows = rows(&reported, &heap, &[sampled(24, 2), sampled(33_000, 2)]);
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
                // Sampled blocks are not in the allocator's pages.
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
        let reported = [class(32_768, 0, 0), class(usize::MAX, 2, 2)];
        let rows = rows(&reported, &ledger(&[(33_000, 2)]), &[sampled(33_000, 1)]);
        assert_eq!(rows.len(), 1);
        // Sampled blocks of that size stay in the allocator's pages.
        let live = Live {
            blocks: 2,
            bytes: 66_000,
        };
        assert_eq!(rows[0].live, Some(live));
    }

    #[test]
    fn live_blocks_without_room_for_them_are_shown() {
        let reported = [class(16, 0, 0), class(usize::MAX, 0, 0)];
        let shown = rows(&reported, &ledger(&[(16, 3)]), &[]);
        assert_eq!((shown[0].room, shown[0].kept()), (0, Some(-48)));
        assert!(rows(&reported, &ledger(&[]), &[]).is_empty());
    }
}
