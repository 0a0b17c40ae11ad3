//! Total times for which threads waited for one another.

use std::time::Duration;

use plimsoll_waits::contention;

/// Sums over all waits since the process began. Exact for the time in which a block rate or a mutex
/// fraction was set (see `plimsoll::profile::set_block_rate`): then the sums include every wait,
/// whether sampled or not. Each field is read at its own moment.
///
/// ```
/// plimsoll::profile::set_mutex_fraction(1);
/// let stats = plimsoll::lock_stats();
/// println!("{} waits for locks, {:?} in all", stats.lock_waits, stats.lock_waited);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Completed waits of any kind: for locks, conditions, channels, other threads. A count; exact
    /// under the condition above.
    pub waits: u64,
    /// Their total duration, up to the wakeup of the thread; exact under the same condition.
    pub waited: Duration,
    /// The part of `waits` for mutexes and readers-writer locks. A count; exact under the same
    /// condition.
    pub lock_waits: u64,
    /// Their total duration; exact under the same condition.
    pub lock_waited: Duration,
    /// Estimated time for which threads waited for locks while neither rate nor fraction was set.
    /// One in eight waits, chosen at random, is timed until the thread runs again. Counts only
    /// since `plimsoll::start`.
    pub lock_waited_estimate: Duration,
    /// Time from the wakeup of threads until they ran again; exact under the same condition.
    pub wakeup_latency: Duration,
    /// Releases of locks that other threads waited for. A count; exact under the same condition.
    pub contended_releases: u64,
    /// Time for which other threads waited for those releases; exact under the same condition. Once
    /// all of those waits are over, it is [`LockStats::lock_waited`] less two kinds of waits: those
    /// that timed out, and those that were charged to no release
    /// (`LostEvents::waits`).
    pub blamed: Duration,
}

impl LockStats {
    /// Returns the total time for which threads waited for locks: Go's
    /// `/sync/mutex/wait/total:seconds`.
    pub fn mutex_wait_total(&self) -> Duration {
        self.lock_waited + self.lock_waited_estimate
    }
}

/// Reads the sums. Takes some hundred nanoseconds, and blocks no thread.
pub fn lock_stats() -> LockStats {
    let totals = contention::totals();
    LockStats {
        waits: totals.waits,
        waited: Duration::from_nanos(totals.waited_ns),
        lock_waits: totals.lock_waits,
        lock_waited: Duration::from_nanos(totals.lock_waited_ns),
        lock_waited_estimate: Duration::from_nanos(totals.lock_waited_estimate_ns),
        wakeup_latency: Duration::from_nanos(totals.wakeup_ns),
        contended_releases: totals.releases,
        blamed: Duration::from_nanos(totals.blamed_ns),
    }
}

/// Subtracts an earlier reading from `sums`.
pub fn subtract(sums: &mut LockStats, earlier: &LockStats) {
    let less = |count: &mut u64, before: u64| *count = count.saturating_sub(before);
    let shorter = |time: &mut Duration, before: Duration| *time = time.saturating_sub(before);
    // All fields, so that a new one must be placed here.
    let LockStats {
        waits,
        waited,
        lock_waits,
        lock_waited,
        lock_waited_estimate,
        wakeup_latency,
        contended_releases,
        blamed,
    } = sums;
    less(waits, earlier.waits);
    shorter(waited, earlier.waited);
    less(lock_waits, earlier.lock_waits);
    shorter(lock_waited, earlier.lock_waited);
    shorter(lock_waited_estimate, earlier.lock_waited_estimate);
    shorter(wakeup_latency, earlier.wakeup_latency);
    less(contended_releases, earlier.contended_releases);
    shorter(blamed, earlier.blamed);
}
