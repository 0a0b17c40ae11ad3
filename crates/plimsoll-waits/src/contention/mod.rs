//! Threads that wait for one another: the part of the block and mutex profiles that does not
//! depend on where a wait was observed.
//!
//! A thread that waits on a *key* (the address of a lock, or a number that stands for it) enters
//! [`WAITERS`] before and leaves it afterwards. A thread that is about to wake waiters of that key
//! *stamps* them. The clock of each waiter holds the time until which its wait is accounted for,
//! and a stamp advances the clock to now.
//!
//! * Each release is charged the sum by which its stamps advance the clocks of all waiters for that
//!   lock. This is the time that others have waited so far and that no earlier release was charged.
//! * The wait of a woken thread ends with its last stamp, not when the thread gets a processor
//!   again. The time between the two is the wake-up latency.
//!
//! For locks, the sum of all charges therefore equals the sum of all waits, to the nanosecond. A
//! wait for a lock that ends without a stamp (a signal; a wake-up meant for another waiter) is not
//! over: the thread will try again. The time waited so far is *carried* to its next wait on that
//! key.
//!
//! Only the locks of [`crate::sync`] record which thread *holds* a lock: see [`holder`].
//!
//! Waits come from two places. The primitives of [`crate::sync`] report their own waits;
//! `plimsoll_profiles::hook` sees the futex calls of all others. The primitives themselves wait by futex
//! calls, so the hook is [suspended](suspend()) for a thread while it waits in one of them. The
//! waits of tasks are not in the table: see `awaited`.
//!
//! Waits of Plimsoll's own code are counted separately from the program's: see [`internal`].

pub mod awaited;
pub mod holder;
pub mod internal;
mod kind;
pub mod meter;
mod rates;
mod record;
mod suspended;
mod totals;
mod wait;
mod waiters;

pub use kind::WaitKind;
use plimsoll_sys::os::fork::{Table, join};
pub use rates::{block_rate, mutex_fraction, set_block_rate, set_mutex_fraction};
pub use record::{COUNT_BITS, cell};
pub use suspended::is_suspended;
pub use suspended::{Suspended, suspend};
pub use totals::{Totals, totals};
pub use wait::is_waited_for;
pub use wait::release;
pub use wait::{Ended, Release, Wait, release_by_reader, release_key};

use plimsoll_core::fork::Order;
use waiters::WAITERS;

/// Prepares the tables of waiters. Called once, before `main`.
#[cfg(not(loom))]
pub fn prepare() {
    plimsoll_sys::primitives::observe_waits(internal::observe);
    WAITERS.prepare();
    holder::prepare();
    join(&FORK);
}

#[cfg(not(loom))]
static FORK: Table = Table::new(Order::Waiters.rank(), after_fork_in_child);

/// Empties the tables in the child of a fork, which has no waiters.
#[cfg(not(loom))]
fn after_fork_in_child() {
    WAITERS.after_fork_in_child();
    holder::after_fork_in_child();
    rates::begin_anew();
}

/// Returns the number of waits that were not recorded, or not in full.
pub fn lost_waits() -> u64 {
    let of_tasks = plimsoll_tasks::task::lock_owners::lost();
    waiters::lost() + holder::lost() + of_tasks
}
