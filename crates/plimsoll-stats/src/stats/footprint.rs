//! Declared, allocated and resident memory of one reading.

use plimsoll_core::internal_scope;
use plimsoll_process::residency;
use plimsoll_tasks::declared::{self, DeclaredStats};

use super::{AccountStats, HeapStats, heap_stats_with_accounts};

/// The memory of the process by three measures: what the program declares, what it has allocated, and what is resident.
/// Returned by [`footprint()`].
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::stats::Declared;
///
/// let pool = Declared::new("pool");
/// pool.grow(4096);
/// let memory = plimsoll::stats::footprint();
/// assert_eq!(memory.declared, 4096);
/// println!("{} bytes are allocated and not declared", memory.undeclared());
/// if let Some(unallocated) = memory.unallocated() {
///     println!("{unallocated} bytes are resident and not allocated");
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// Bytes that the program declares: the sum of all [`Declared`](super::Declared) accounts that lie in no other. Exact.
    pub declared: u64,
    /// The maximum of `declared`. Exact.
    pub peak_declared: u64,
    /// Bytes in use: `heap` and `committed`. Exact.
    pub allocated: u64,
    /// Bytes of the blocks in use of the program's allocator.
    pub heap: u64,
    /// Bytes that [accounts](super::Account) of memory outside of the allocator have committed.
    pub committed: u64,
    /// Resident memory as the kernel reports it, some microseconds later; `None` without `/proc`.
    pub resident: Option<u64>,
    /// The declared accounts, in the order of their creation.
    pub accounts: Vec<DeclaredStats>,
    /// Whether `declared` and `allocated` are of one instant. False if other threads declared during each of several readings;
    /// sums agree with their parts also then.
    pub is_of_one_instant: bool,
}

impl Footprint {
    /// Returns the bytes that are allocated beyond the declared ones; negative if more are declared.
    pub fn undeclared(&self) -> i64 {
        (self.allocated as i64).wrapping_sub(self.declared as i64)
    }

    /// Returns the bytes that are resident beyond the allocated ones; negative if parts of the allocated memory were never
    /// touched. [`reconcile()`](super::reconcile()) divides them by cause: the rows other than blocks in use.
    pub fn unallocated(&self) -> Option<i64> {
        Some((self.resident? as i64).wrapping_sub(self.allocated as i64))
    }
}

/// Returns the bytes that the program declares; `None` if it never had an account.
pub fn declared_bytes() -> Option<u64> {
    declared::sum()
}

/// Reads declared, allocated and resident memory. Takes some microseconds: it does not visit mappings.
///
/// Not for signal handlers, and not for hooks.
pub fn footprint() -> Footprint {
    read().0
}

/// Reads them, with the statistics of the heap and of accounts of the same instant.
pub(super) fn read() -> (Footprint, HeapStats, Vec<AccountStats>) {
    let _own = internal_scope::scope();
    let ((stats, accounts), reading) = declared::read_with(heap_stats_with_accounts);
    let heap = stats.malloc_bytes.saturating_sub(stats.free_bytes);
    let committed = accounts.iter().map(|account| account.committed).sum();
    let footprint = Footprint {
        declared: reading.declared,
        peak_declared: reading.peak,
        allocated: heap + committed,
        heap,
        committed,
        resident: residency::total(),
        accounts: reading.accounts,
        is_of_one_instant: reading.is_of_one_instant,
    };
    (footprint, stats, accounts)
}
