//! The primitives of `plimsoll::sync::tokio`: they report to the profiles, and otherwise behave as
//! tokio's.

#[path = "tokio_sync/blame.rs"]
mod blame;
#[path = "tokio_sync/cancelled.rs"]
mod cancelled;
#[path = "tokio_sync/executors.rs"]
mod executors;
#[allow(dead_code, reason = "it is another test's, too")]
use crate::sync::scene;
#[path = "tokio_sync/signatures.rs"]
mod signatures;
#[path = "tokio_sync/sums.rs"]
mod sums;
#[path = "tokio_sync/tasks.rs"]
mod tasks;
#[path = "tokio_sync/waits.rs"]
mod waits;
