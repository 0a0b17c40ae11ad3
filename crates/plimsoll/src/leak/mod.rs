//! What will never go on, and what probably will not.
//!
//! *Proved* is that
//! * nothing is left that could wake a task ([`TaskRecord::is_forgotten`]);
//! * threads wait for locks of [`crate::sync`] that they hold themselves, in a circle, or that
//!   somebody holds who does ([`deadlock`]). What is done once counts as a lock, and so does a
//!   thread, for who waits for its end.
//!
//! *Probable* is a leak where
//! * more and more of the same wait in the same place for long ([`growth`]);
//! * tasks wait for locks of `crate::sync::tokio` whose guards they made themselves, in a circle, or
//!   behind one (`tasks`).
//!
//! Locks note their owners only while rates are set or since a report of deadlocks was asked for
//! ([`crate::contention::notes_owners`]): the owner of a lock that was taken before is unknown.
//!
//! [`TaskRecord::is_forgotten`]: crate::task::TaskRecord::is_forgotten

pub(crate) mod deadlock;
pub(crate) mod growth;
#[cfg(feature = "tokio")]
pub(crate) mod tasks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Why somebody is believed to wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leak {
    /// Nobody has a waker of it.
    Forgotten,
    /// It waits for a lock that is part of a deadlock.
    Deadlock(deadlock::Stuck),
    /// More and more of its like wait there for long.
    Grows,
}

impl Leak {
    /// Whether it is certain.
    pub(crate) fn is_proved(self) -> bool {
        match self {
            Self::Forgotten => true,
            Self::Deadlock(stuck) => stuck.is_proved,
            Self::Grows => false,
        }
    }

    /// A word for it, as the label `leak`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Forgotten => "forgotten",
            Self::Deadlock(stuck) => match (stuck.is_proved, stuck.in_circle) {
                (true, true) => "deadlock",
                (true, false) => "behind a deadlock",
                (false, true) => "probable deadlock",
                (false, false) => "behind a probable deadlock",
            },
            Self::Grows => "probable",
        }
    }
}

/// Ten minutes.
const DEFAULT_AGE: Duration = Duration::from_secs(600);

static AGE: AtomicU64 = AtomicU64::new(DEFAULT_AGE.as_nanos() as u64);

/// For how long somebody has to wait in order to be old.
pub(crate) fn age() -> Duration {
    Duration::from_nanos(AGE.load(Ordering::Relaxed))
}

/// Sets that, and returns what it was.
pub(crate) fn set_age(age: Duration) -> Duration {
    let nanoseconds = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(AGE.swap(nanoseconds, Ordering::Relaxed))
}
