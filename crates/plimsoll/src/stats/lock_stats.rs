//! How long threads have waited for one another.

use std::time::Duration;

use crate::contention;

/// Sums over all waits since the process began. Exact for the time in which there was a block rate
/// or a mutex fraction (see [`crate::profile::set_block_rate`]): then every wait is in them,
/// whether it was sampled or not. Each is read at its own moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Waits of any kind that are over: for locks, conditions, channels, other threads. A count;
    /// exact, as said.
    pub waits: u64,
    /// How long those took, up to when the thread was woken; exact, as said.
    pub waited: Duration,
    /// Those of them for locks: mutexes and readers-writer locks. A count; exact, as said.
    pub lock_waits: u64,
    /// How long those took; exact, as said.
    pub lock_waited: Duration,
    /// How long threads have waited for locks in the rest of the time: an estimate, for which one
    /// in eight waits is timed, by chance, up to when the thread runs again. Only since
    /// [`crate::start`].
    pub lock_waited_estimate: Duration,
    /// From when threads were woken to when they ran again; exact, as said.
    pub wakeup_latency: Duration,
    /// Releases of locks that others waited for. A count; exact, as said.
    pub contended_releases: u64,
    /// How long others had waited for those; exact, as said. Once all of those waits are over, it
    /// is [`LockStats::lock_waited`] less waits that ended at their time
    /// limit, or that nobody is to blame for
    /// ([`LostEvents::waits`](crate::profile::LostEvents::waits)).
    pub blamed: Duration,
}

impl LockStats {
    /// How long threads have waited for locks: what Go has as `/sync/mutex/wait/total:seconds`.
    pub fn mutex_wait_total(&self) -> Duration {
        self.lock_waited + self.lock_waited_estimate
    }
}

/// Reads the sums. Takes some hundred nanoseconds, and keeps nobody from anything.
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
