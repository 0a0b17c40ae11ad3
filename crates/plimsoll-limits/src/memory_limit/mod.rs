//! A soft limit on memory. Near the limit, Plimsoll returns free memory to the system and calls the
//! program, so that it can release caches.
//!
//! A thread of Plimsoll checks every 100 ms, and every 10 ms when little memory is left. So nothing
//! is ever called from inside an allocation. Callbacks may allocate, lock and wait, and only one
//! runs at a time. Nothing is refused: an allocation beyond the limit proceeds as usual.

mod thresholds;
mod watch;

use std::sync::Arc;

use plimsoll_core::internal_scope;
use plimsoll_core::settings::{MemoryLimit, MemoryLimitError, resolve};
use thresholds::Threshold;
use watch::lock;

/// Returns the limit in bytes; `None` for none.
pub fn bytes() -> Option<u64> {
    lock().limit.map(|limit| limit.bytes)
}

/// Sets the amount of memory that the program should stay below, and returns the previous limit, in
/// bytes; `None` for no limit. Go's `debug.SetMemoryLimit`.
///
/// The limit applies to the largest of these figures:
/// * Go's: `sys - heap_released` of [`MemStats`](plimsoll_stats::stats::MemStats), with only the touched part of
///   stacks, plus the committed bytes of [accounts](plimsoll_stats::stats::Account), touched or not;
/// * the resident memory of the process that is neither in a file nor shared (`RssAnon`). It
///   includes memory that an allocator holds beyond its blocks and does not report, such as the C
///   library's, and memory that the program maps directly. It includes pages that were returned by `MADV_FREE` until
///   the kernel takes them;
/// * for the limit of a control group, or a part of it: the memory of all processes of the group that the kernel
///   cannot take back. It includes tmpfs, buffers of sockets and memory of the kernel, and no cached files.
///
/// From 90 % of the limit on, Plimsoll returns memory that the allocator holds to the system
/// ([`free_os_memory`](plimsoll_stats::stats::free_os_memory)), at most once a second. It also does so before any
/// callback of [`on_memory_threshold`], unless that was just done, and after callbacks that freed
/// memory. This takes at most about a tenth of the time of one of Plimsoll's threads; while that
/// thread rests, for a second at most, only the first figure is reported. Collectors receive the
/// limit: it becomes [`gc::memory_limit`](plimsoll_stats::gc::memory_limit), which they may follow.
///
/// After this call, every threshold can be crossed again. In the child of a fork, the limit is not
/// watched until it is set there.
///
/// # Errors
/// See [`MemoryLimitError`]: the limit is unchanged.
pub fn set_memory_limit(limit: MemoryLimit) -> Result<Option<u64>, MemoryLimitError> {
    let limit = resolve(limit)?;
    if limit.is_none() {
        return Ok(watch::set(None));
    }
    // Start the thread first, since that can fail.
    watch::wake().map_err(MemoryLimitError::NoThread)?;
    let before = watch::set(limit);
    watch::wake().map_err(MemoryLimitError::NoThread)?;
    Ok(before)
}

/// The figures that a callback receives, as of shortly before the call.
///
/// ```
/// use plimsoll::{MemoryPressure, on_memory_threshold};
///
/// fn refuse_requests(pressure: &MemoryPressure) {
///     println!("{} bytes are left", pressure.limit.saturating_sub(pressure.used));
/// }
/// let _refuses = on_memory_threshold(95, refuse_requests);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryPressure {
    /// The limit, in bytes.
    pub limit: u64,
    /// The bytes in use, after memory was returned to the system: the largest of the figures in
    /// [`set_memory_limit`].
    pub used: u64,
    /// The threshold that was crossed, in hundredths of the limit.
    pub percent: u32,
}

/// A registered callback, until this is dropped. A running callback then finishes.
///
/// ```
/// struct Cache {
///     _shrinks: plimsoll::MemoryThreshold,
/// }
/// let cache = Cache { _shrinks: plimsoll::on_memory_threshold(80, |_| println!("nearly full")) };
/// // The callback ends with the cache.
/// drop(cache);
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the callback"]
pub struct MemoryThreshold {
    number: u64,
}

/// Registers a callback that runs when `percent` hundredths of the [memory limit](set_memory_limit)
/// are in use. It runs once each time that the threshold is crossed: the use must fall 5 hundredths
/// below it before it can be crossed again. If several thresholds are crossed at once, their
/// callbacks run from the lowest up, each with the figures of that moment.
///
/// One thread of Plimsoll runs the callbacks, one at a time and never from inside an allocation.
/// They may do anything that a thread may do, and should not take longer than the program can wait
/// for the next. A panic ends only the callback in which it occurs.
///
/// ```
/// use plimsoll::{MemoryLimit, on_memory_threshold, set_memory_limit};
///
/// set_memory_limit(MemoryLimit::Bytes(1 << 30)).expect("there can be a thread");
/// let _shrinks = on_memory_threshold(80, |pressure| {
///     println!("{} of {} bytes in use: the cache is cleared", pressure.used, pressure.limit);
/// });
/// ```
pub fn on_memory_threshold(
    percent: u32,
    callback: impl Fn(&MemoryPressure) + Send + Sync + 'static,
) -> MemoryThreshold {
    let callback: thresholds::Callback = Arc::new(callback);
    let number = {
        let _own = internal_scope::scope();
        let mut state = lock();
        let number = state.next_number;
        state.next_number += 1;
        state.thresholds.push(Threshold {
            number,
            percent,
            callback,
            above: false,
        });
        number
    };
    MemoryThreshold { number }
}

impl Drop for MemoryThreshold {
    fn drop(&mut self) {
        let mut state = lock();
        let mut thresholds = state.thresholds.iter();
        let at = thresholds.position(|threshold| threshold.number == self.number);
        let removed = at.map(|at| state.thresholds.swap_remove(at));
        // Dropping the callback may run code of the program, so the lock is released first.
        drop(state);
        drop(removed);
    }
}
