//! Every other processor and system, and `--cfg plimsoll_portable`: per-thread shards in ordinary Rust.

use plimsoll_sys::os::rseq::Area;

use super::super::per_cpu::Operation;
use super::super::{Delta, Ledger, ShardIndex};

/// See the other processors.
pub const HAS_SEQUENCES: bool = false;

/// Adds 1 to a word of a ledger.
#[macro_export]
macro_rules! increment {
    ($ledger:path, $area:expr, $offset:expr, $first:literal) => {
        $ledger.add_portably($area, $first + $offset / 8, 1)
    };
}

/// Adds an amount to a word of a ledger.
#[macro_export]
macro_rules! add {
    ($ledger:path, $area:expr, $word:literal, $amount:expr) => {
        $ledger.add_portably($area, $word, $amount)
    };
}

pub use add;
pub use increment;

impl<D: Delta> Ledger<D> {
    /// Does what the macros do, in ordinary Rust, in the shard that owns the area.
    ///
    /// # Safety
    /// As for `increment`.
    #[inline]
    pub unsafe fn add_portably(&self, area: *mut Area, word: usize, amount: u64) {
        // SAFETY: `area` is the calling thread's, by this function's contract; on this platform,
        // only per-thread shards have areas.
        let shard = unsafe { ShardIndex::of_area(area) };
        self.per_thread
            .record(shard, &[(word, amount)], || self.generation());
    }
}

/// Never called: without restartable sequences no ledger opens with this protocol.
///
/// # Safety
/// None.
pub(in super::super) unsafe fn record(
    _area: *mut Area,
    _current: *const usize,
    _second_row: usize,
    _operation: &Operation,
) {
}

/// Never called: without restartable sequences no ledger opens with this protocol.
///
/// # Safety
/// None.
pub(in super::super) unsafe fn record_pair(
    _area: *mut Area,
    _current: *const usize,
    _second_row: usize,
    _packed: u64,
    _entries: [(usize, u64); 2],
) {
}

/// Never called: without restartable sequences no ledger opens with this protocol.
///
/// # Safety
/// None.
#[cfg(test)]
pub(in super::super) unsafe fn count_held_up(
    _area: *mut Area,
    _current: *const usize,
    _inside: &std::sync::atomic::AtomicBool,
    _let_go: &std::sync::atomic::AtomicBool,
) {
    unreachable!("no ledger opens with per-CPU shards")
}
