//! What the primitives of `plimsoll::sync::tokio` tell the profiles, and that they are tokio's in
//! everything else.

mod pprof;

#[path = "tokio_sync/blame.rs"]
mod blame;
#[path = "tokio_sync/cancelled.rs"]
mod cancelled;
#[path = "tokio_sync/executors.rs"]
mod executors;
#[allow(dead_code, reason = "it is another test's, too")]
#[path = "sync/scene.rs"]
mod scene;
#[path = "tokio_sync/signatures.rs"]
mod signatures;
#[path = "tokio_sync/sums.rs"]
mod sums;
#[path = "tokio_sync/tasks.rs"]
mod tasks;
#[path = "tokio_sync/waits.rs"]
mod waits;
