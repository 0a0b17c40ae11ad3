//! The counters of allocations, and the ledger that holds them.

use plimsoll_postmortem::layout::CounterLayout;
use plimsoll_sys::os::rseq::Area;

use plimsoll_ledger::ledger::{Delta, Ledger, Protocol, Reader, Writer};
use plimsoll_ledger::size_class;

/// The sums over all allocations and frees since the process began.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeapDelta {
    /// Blocks ever allocated, by size class.
    pub mallocs: [u64; size_class::CLASSES],
    /// Blocks ever freed, by size class.
    pub frees: [u64; size_class::CLASSES],
    /// Above [`size_class::LARGEST`], where bytes are counted as requested.
    pub large_mallocs: u64,
    /// Frees of such blocks.
    pub large_frees: u64,
    /// Their bytes ever allocated.
    pub large_malloc_bytes: u64,
    /// Their bytes ever freed.
    pub large_free_bytes: u64,
    /// Bytes requested, where allocations are counted by their usable size: under the `malloc`
    /// interposition.
    pub asked_bytes: u64,
    /// The counters of the program's accounts, by row and [`AccountField`].
    pub accounts: [[u64; AccountField::COUNT]; MAX_ACCOUNTS],
}

/// The number of rows for the program's accounts.
pub const MAX_ACCOUNTS: usize = 16;

/// The counters of an account: bytes since the process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum AccountField {
    /// Address space that was reserved.
    Reserved,
    /// Address space that was given back.
    Unreserved,
    /// Memory that was made accessible.
    Committed,
    /// Memory that was returned to the system.
    Released,
}

impl AccountField {
    /// The number of counters.
    pub const COUNT: usize = 4;
}

// SAFETY: `repr(C)`, u64 words only.
unsafe impl Delta for HeapDelta {
    const ZERO: Self = Self {
        mallocs: [0; size_class::CLASSES],
        frees: [0; size_class::CLASSES],
        large_mallocs: 0,
        large_frees: 0,
        large_malloc_bytes: 0,
        large_free_bytes: 0,
        asked_bytes: 0,
        accounts: [[0; AccountField::COUNT]; MAX_ACCOUNTS],
    };
}

impl HeapDelta {
    /// Subtracts the counts of `earlier`, except for accounts, which keep their totals.
    pub fn subtract(&mut self, earlier: &Self) {
        let pairs = [
            (&mut self.large_mallocs, earlier.large_mallocs),
            (&mut self.large_frees, earlier.large_frees),
            (&mut self.large_malloc_bytes, earlier.large_malloc_bytes),
            (&mut self.large_free_bytes, earlier.large_free_bytes),
            (&mut self.asked_bytes, earlier.asked_bytes),
        ];
        let mallocs = self.mallocs.iter_mut().zip(&earlier.mallocs);
        let frees = self.frees.iter_mut().zip(&earlier.frees);
        for (count, before) in mallocs.chain(frees) {
            *count = count.saturating_sub(*before);
        }
        for (count, before) in pairs {
            *count = count.saturating_sub(before);
        }
    }

    /// Returns the number of blocks in use, modulo 2^64.
    pub fn live_objects(&self) -> u64 {
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, n| sum.wrapping_add(*n));
        let mallocs = self.large_mallocs.wrapping_add(sum(&self.mallocs));
        mallocs.wrapping_sub(self.large_frees.wrapping_add(sum(&self.frees)))
    }

    /// Returns the bytes in use, modulo 2^64, so that the values of several shards add up to their
    /// sum.
    pub fn live_bytes(&self) -> u64 {
        let live = |mallocs: u64, frees: u64| mallocs.wrapping_sub(frees);
        let classes = self.mallocs.iter().zip(&self.frees).enumerate();
        classes.fold(
            live(self.large_malloc_bytes, self.large_free_bytes),
            |sum, (class, (&mallocs, &frees))| {
                let each = size_class::size(class) as u64;
                sum.wrapping_add(each.wrapping_mul(live(mallocs, frees)))
            },
        )
    }
}

const MALLOCS: usize = 0;
const FREES: usize = size_class::CLASSES;
const LARGE_MALLOCS: usize = 2 * size_class::CLASSES;
const LARGE_FREES: usize = LARGE_MALLOCS + 1;
const LARGE_MALLOC_BYTES: usize = LARGE_MALLOCS + 2;
const LARGE_FREE_BYTES: usize = LARGE_MALLOCS + 3;
const ASKED_BYTES: usize = LARGE_MALLOCS + 4;
const ACCOUNTS: usize = LARGE_MALLOCS + 5;

/// The layout of the counters, for readers of post-mortem files.
pub(super) const LAYOUT: CounterLayout = CounterLayout {
    counters: <HeapDelta as Delta>::WORDS,
    classes: size_class::CLASSES,
    mallocs: MALLOCS,
    frees: FREES,
    large_mallocs: LARGE_MALLOCS,
    large_frees: LARGE_FREES,
    large_malloc_bytes: LARGE_MALLOC_BYTES,
    large_free_bytes: LARGE_FREE_BYTES,
};

const _: () = assert!(FREES == 164, "the literal in `free_small`");
const _: () = assert!(std::mem::offset_of!(HeapDelta, mallocs) == 8 * MALLOCS);
const _: () = assert!(std::mem::offset_of!(HeapDelta, frees) == 8 * FREES);
const _: () = assert!(std::mem::offset_of!(HeapDelta, large_mallocs) == 8 * LARGE_MALLOCS);
const _: () = assert!(std::mem::offset_of!(HeapDelta, large_free_bytes) == 8 * LARGE_FREE_BYTES);
const _: () = assert!(std::mem::offset_of!(HeapDelta, asked_bytes) == 8 * ASKED_BYTES);
const _: () = assert!(std::mem::offset_of!(HeapDelta, accounts) == 8 * ACCOUNTS);
const _: () = assert!(ASKED_BYTES == 332, "the literal in `asked_in`");

/// The ledger of the process: every [`super::Alloc`] counts here.
pub static HEAP: Ledger<HeapDelta> = Ledger::new();

/// Returns everything counted up to now. The calling thread holds the readers' lock and is about to
/// fork. Waits for no thread: a signal handler may fork while its own thread is counting.
pub fn counted_so_far(reader: &mut Reader<HeapDelta>) -> HeapDelta {
    if HEAP.protocol() == Some(Protocol::PerCpu) {
        return HEAP.read_locked(reader).delta;
    }
    // Frees are read first, so that they cannot exceed allocations.
    let earlier = HEAP.sum_as_it_is();
    let later = HEAP.sum_as_it_is();
    HeapDelta {
        frees: earlier.frees,
        large_frees: earlier.large_frees,
        large_free_bytes: earlier.large_free_bytes,
        ..later
    }
}

/// Counts an allocation of a size up to [`size_class::LARGEST_STEP`].
///
/// # Safety
/// `area` is the calling thread's, from [`Ledger::area`] of [`HEAP`], and not null.
#[inline(always)]
pub unsafe fn malloc_small(area: *mut Area, size: usize) {
    // SAFETY: `area` meets the contract of `malloc_in`, by this function's contract. Dividing by 8
    // yields the class: the compiler removes the division.
    unsafe { malloc_in(area, size.div_ceil(8)) }
}

/// Counts a free of a size up to [`size_class::LARGEST_STEP`].
///
/// # Safety
/// As for [`malloc_small`].
#[inline(always)]
pub unsafe fn free_small(area: *mut Area, size: usize) {
    // SAFETY: `area` meets the contract of `free_in`, by this function's contract.
    unsafe { free_in(area, size.div_ceil(8)) }
}

/// Counts an allocation in a class.
///
/// # Safety
/// As for [`malloc_small`]; `class` is a valid class.
#[inline(always)]
pub unsafe fn malloc_in(area: *mut Area, class: usize) {
    #[cfg(feature = "double-check")]
    let _check = plimsoll_ledger::ledger::double_check::HEAP.operation(&[(MALLOCS + class, 1)]);
    // SAFETY: `area` is the calling thread's and the class exists, by this function's contract.
    unsafe { plimsoll_ledger::ledger::increment!(HEAP, area, 8 * class, 0) }
}

/// Counts a free in a class.
///
/// # Safety
/// As for [`malloc_in`].
#[inline(always)]
pub unsafe fn free_in(area: *mut Area, class: usize) {
    #[cfg(feature = "double-check")]
    let _check = plimsoll_ledger::ledger::double_check::HEAP.operation(&[(FREES + class, 1)]);
    // SAFETY: `area` is the calling thread's and the class exists, by this function's contract.
    unsafe { plimsoll_ledger::ledger::increment!(HEAP, area, 8 * class, 164) }
}

/// Counts an allocation above [`size_class::LARGEST`].
///
/// # Safety
/// As for [`malloc_small`].
#[inline(never)]
pub unsafe fn malloc_large(area: *mut Area, size: usize) {
    // SAFETY: `area` meets the contract of `pair`; the positions are the words of large
    // allocations.
    unsafe { pair(area, (LARGE_MALLOCS, 1), (LARGE_MALLOC_BYTES, size as u64)) }
}

/// Counts a free above [`size_class::LARGEST`].
///
/// # Safety
/// As for [`malloc_small`].
#[inline(never)]
pub unsafe fn free_large(area: *mut Area, size: usize) {
    // SAFETY: `area` meets the contract of `pair`; the positions are the words of large frees.
    unsafe { pair(area, (LARGE_FREES, 1), (LARGE_FREE_BYTES, size as u64)) }
}

/// Counts a free and an allocation in the same cut, both of sizes up to
/// [`size_class::LARGEST_STEP`].
///
/// # Safety
/// As for [`malloc_small`]; neither size is larger than that.
#[inline(always)]
pub(super) unsafe fn realloc_small(area: *mut Area, old_size: usize, new_size: usize) {
    let (old_class, new_class) = (old_size.div_ceil(8), new_size.div_ceil(8));
    // SAFETY: `area` meets the contract of `pair`; sizes up to `LARGEST_STEP` have these classes.
    unsafe { pair(area, (MALLOCS + new_class, 1), (FREES + old_class, 1)) }
}

/// Counts a free and an allocation in the same cut, both of sizes up to [`size_class::LARGEST`].
///
/// # Safety
/// As for [`malloc_small`].
#[inline(never)]
pub unsafe fn realloc_larger(area: *mut Area, old_size: usize, new_size: usize) {
    if let (Some(old_class), Some(new_class)) = (size_class::of(old_size), size_class::of(new_size))
    {
        // SAFETY: `area` meets the contract of `pair`; `size_class::of` returned the classes.
        unsafe { pair(area, (MALLOCS + new_class, 1), (FREES + old_class, 1)) }
    }
}

/// Adds to two words in the same cut.
///
/// # Safety
/// As for [`malloc_small`]; both are positions in a [`HeapDelta`], and differ.
#[inline(always)]
unsafe fn pair(area: *mut Area, first: (usize, u64), second: (usize, u64)) {
    #[cfg(feature = "double-check")]
    let _check = plimsoll_ledger::ledger::double_check::HEAP.operation(&[first, second]);
    // SAFETY: `area` and the positions meet the contract of `record_pair`, by this function's
    // contract.
    unsafe { HEAP.record_pair(area, [first, second]) }
}

/// Counts the bytes that an allocation requested.
///
/// # Safety
/// As for [`malloc_small`].
#[inline(always)]
pub unsafe fn asked_in(area: *mut Area, size: usize) {
    // SAFETY: `area` is the calling thread's, by this function's contract.
    unsafe { plimsoll_ledger::ledger::add!(HEAP, area, 332, size as u64) }
}

/// Counts the bytes that an allocation requested, on the cold path.
pub fn asked(writer: Writer, size: usize) {
    HEAP.record(writer, &[(ASKED_BYTES, size as u64)]);
}

/// Counts an allocation of any size.
pub fn malloc(writer: Writer, size: usize) {
    record(writer, &Entries::new().malloc(size));
}

/// Counts a free of any size.
pub fn free(writer: Writer, size: usize) {
    record(writer, &Entries::new().free(size));
}

/// Counts a free and an allocation, both in the same cut.
pub fn realloc(writer: Writer, old_size: usize, new_size: usize) {
    record(writer, &Entries::new().free(old_size).malloc(new_size));
}

/// Adds `bytes` to a counter of an account. For hooks.
pub fn account(row: usize, of: AccountField, bytes: usize) {
    let word = ACCOUNTS + AccountField::COUNT * row + of as usize;
    record(
        super::thread::writer(),
        &Entries::new().and(word, bytes as u64),
    );
}

fn record(writer: Writer, entries: &Entries) {
    let entries = &entries.entries[..entries.used];
    #[cfg(feature = "double-check")]
    let _check = plimsoll_ledger::ledger::double_check::HEAP.operation(entries);
    HEAP.record(writer, entries);
}

/// The words that an operation changes.
struct Entries {
    entries: [(usize, u64); plimsoll_ledger::ledger::MAX_ENTRIES],
    used: usize,
}

impl Entries {
    fn new() -> Self {
        Self {
            entries: [(0, 0); plimsoll_ledger::ledger::MAX_ENTRIES],
            used: 0,
        }
    }

    fn malloc(self, size: usize) -> Self {
        match size_class::of(size) {
            Some(class) => self.and(MALLOCS + class, 1),
            None => self
                .and(LARGE_MALLOCS, 1)
                .and(LARGE_MALLOC_BYTES, size as u64),
        }
    }

    fn free(self, size: usize) -> Self {
        match size_class::of(size) {
            Some(class) => self.and(FREES + class, 1),
            None => self.and(LARGE_FREES, 1).and(LARGE_FREE_BYTES, size as u64),
        }
    }

    fn and(mut self, word: usize, amount: u64) -> Self {
        self.entries[self.used] = (word, amount);
        self.used += 1;
        self
    }
}
