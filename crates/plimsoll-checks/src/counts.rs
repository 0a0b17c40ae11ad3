//! The counts of blocks of one size.

use plimsoll::{HeapStats, heap_stats, size_class};

/// Returns mallocs and frees so far: of the class of `size`, or of large blocks with their bytes.
fn counts(stats: &HeapStats, size: usize) -> [u64; 4] {
    match size_class::of(size) {
        Some(class) => {
            let counts = stats.by_class[class];
            [
                counts.mallocs,
                counts.frees,
                counts.mallocs * counts.size as u64,
                counts.frees * counts.size as u64,
            ]
        }
        None => {
            let large = stats.large;
            [
                large.mallocs,
                large.frees,
                large.malloc_bytes,
                large.free_bytes,
            ]
        }
    }
}

/// Returns what `work` adds to the counts of a size: mallocs, frees, and bytes of both. Other threads must not
/// use sizes of the same class meanwhile.
pub fn added(size: usize, work: impl FnOnce()) -> [u64; 4] {
    let before = counts(&heap_stats(), size);
    work();
    let after = counts(&heap_stats(), size);
    std::array::from_fn(|at| after[at] - before[at])
}
