//! What the primitives of `plimsoll::sync::tokio` tell the profiles, and that they are tokio's in
//! everything else.

mod pprof;

#[path = "tokio_sync/blame.rs"]
mod blame;
#[allow(dead_code, reason = "it is another test's, too")]
#[path = "sync/scene.rs"]
mod scene;
#[path = "tokio_sync/tasks.rs"]
mod tasks;
#[path = "tokio_sync/waits.rs"]
mod waits;
