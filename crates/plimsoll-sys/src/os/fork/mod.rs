//! Locks and tables that the child of a fork must find whole.
//!
//! The child has one thread. It must find each lock free, and each count of threads that are inside something must count
//! its own thread only. So each such lock or table is a *member*, which joins when it is first used: no list can lack
//! one. Around a fork:
//!
//! 1. Members [prepare](Member::prepare), while no lock is held.
//! 2. Members are [held](Member::hold), in the order of their ranks.
//! 3. In the parent, they are released, the last first. In the child, each is [reset](Member::reset) before it is
//!    released.
//! 4. In the child, members [resume](Member::resume), after all of them are released.
//!
//! The thread's signals are blocked from the beginning to the end, and while it holds one of the locks: a signal handler
//! may fork, and would wait for its own thread.

mod keeper;
mod lock;
mod members;

pub use keeper::{ForkGuard, ForkLock, Keeper};
pub use lock::{SignalGuard, SignalMutex};
pub use members::{Member, Rank, Table, join};

#[cfg(all(test, unix))]
mod tests;
