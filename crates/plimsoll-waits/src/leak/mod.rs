//! Threads and tasks that will never continue, or probably never will.
//!
//! These leaks are *proved*:
//! * tasks for which no waker is left ([`TaskRecord::is_forgotten`]);
//! * threads that wait in a cycle for locks of [`crate::sync`] that they own themselves, and
//!   threads behind such a cycle ([`deadlock`]). A `Once` counts as a lock. So does a thread, for
//!   the thread that waits for its end.
//!
//! These are *probable*:
//! * places where the number of old waiters of one kind keeps growing ([`growth`]);
//! * tasks that wait, in a cycle or behind one, for locks of `crate::sync::tokio` whose guards they
//!   made themselves. Likewise tasks that wait, for the leak age, for a message of a oneshot
//!   channel whose sender they made (`tasks`).
//!
//! Locks note their owners only while rates are set, or after a report of deadlocks was requested
//! ([`plimsoll_tasks::recording::notes_owners`]). The owner of a lock that was taken earlier is unknown.
//!
//! [`TaskRecord::is_forgotten`]: plimsoll_tasks::task::TaskRecord::is_forgotten

pub mod deadlock;
pub mod growth;
pub mod lock_graph;
pub mod tasks;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The reason why a waiter is believed to wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leak {
    /// No waker of the task is left.
    Forgotten,
    /// It waits for a lock or a thread in a deadlock.
    Deadlock(deadlock::Stuck),
    /// It waits in a place where the number of old waiters keeps growing.
    Grows,
}

impl Leak {
    /// Returns whether the leak is certain.
    pub fn is_proved(self) -> bool {
        match self {
            Self::Forgotten => true,
            Self::Deadlock(stuck) => stuck.is_proved,
            Self::Grows => false,
        }
    }

    /// Returns the value of the label `leak`.
    pub fn word(self) -> &'static str {
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

/// Returns the time after which a waiter counts as old.
pub fn age() -> Duration {
    Duration::from_nanos(AGE.load(Ordering::Relaxed))
}

/// Sets that age, and returns the previous one.
pub fn set_age(age: Duration) -> Duration {
    let nanoseconds = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(AGE.swap(nanoseconds, Ordering::Relaxed))
}
