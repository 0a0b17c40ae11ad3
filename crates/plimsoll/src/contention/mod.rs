//! Who waits for whom: the part of block and mutex profiles that does not care where a wait was
//! seen.
//!
//! A thread that is about to wait on a *key* (the address of a lock, or whatever stands for it)
//! enters [`WAITERS`] and leaves it afterwards. A thread that is about to wake waiters of that key
//! *stamps* them: each waiter's clock says until when its wait is accounted for, and a stamp
//! advances it to now.
//!
//! * What the stamps of one release advance, over all waiters for that lock, is what this release
//!   is blamed for: the time that others waited, up to here, and that nobody was blamed for yet.
//! * A waiter that was woken has waited until the last stamp, not until it got a processor again;
//!   what is between the two is the wake-up latency.
//!
//! So for locks the sum of all blame is the sum of all waits, to the nanosecond. A wait for a lock
//! that ends without having been stamped (a signal; a wake-up meant for somebody else) is not over:
//! the thread will try again, and what it has waited so far is *carried* to its next wait on
//! that key.
//!
//! Which thread *holds* a lock is another question, and is noted only by the locks of
//! [`crate::sync`]: see [`holder`].
//!
//! There are two doors. [`crate::sync`] has primitives that report their own waits; under
//! [`crate::hook`] come the futex calls of everybody else's. The former are made of the latter, so
//! while one of them waits, its thread is [suspended](suspend()) for the hook. Of the former, those
//! that tasks wait for are not in the table: see `awaited`.
//!
//! Waits of Plimsoll's own code are not the program's, and are kept apart: see [`own`].

#[cfg(feature = "tokio")]
pub(crate) mod awaited;
pub(crate) mod holder;
mod kind;
#[cfg(any(feature = "interpose", feature = "tokio"))]
pub(crate) mod meter;
pub(crate) mod own;
mod rates;
mod record;
mod suspended;
mod totals;
mod wait;
mod waiters;

use crate::os::clock;

pub(crate) use kind::WaitKind;
pub(crate) use rates::{
    block_rate, is_on, lock as lock_rates, mutex_fraction, note_owners, notes_owners,
    set_block_rate, set_mutex_fraction,
};
pub(crate) use record::{COUNT_BITS, cell};
#[cfg(feature = "interpose")]
pub(crate) use suspended::is_suspended;
pub(crate) use suspended::{Suspended, suspend};
pub(crate) use totals::{Totals, totals};
#[cfg(feature = "pthread")]
pub(crate) use wait::is_waited_for;
#[cfg(feature = "interpose")]
pub(crate) use wait::release;
pub(crate) use wait::{Ended, Release, Wait, release_by_reader, release_key};
use waiters::WAITERS;

/// Once, before `main`.
#[cfg(not(loom))]
pub(crate) fn prepare() {
    WAITERS.prepare();
    holder::prepare();
}

/// In the child of a fork: nobody waits.
#[cfg(not(loom))]
pub(crate) fn after_fork_in_child() {
    WAITERS.after_fork_in_child();
    holder::after_fork_in_child();
}

/// How many waits were not noted, or not in full.
pub(crate) fn lost_waits() -> u64 {
    #[cfg(feature = "tokio")]
    let of_tasks = crate::task::held::lost();
    #[cfg(not(feature = "tokio"))]
    let of_tasks = 0;
    waiters::lost() + holder::lost() + of_tasks
}
