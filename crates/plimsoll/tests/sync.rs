//! What the primitives of `plimsoll::sync` tell the profiles, and that they are the standard
//! library's in everything else.

mod pprof;

#[path = "sync/blame.rs"]
mod blame;
#[path = "sync/let_in.rs"]
mod let_in;
#[path = "sync/names.rs"]
mod names;
#[path = "sync/scene.rs"]
mod scene;
#[path = "sync/signatures.rs"]
mod signatures;
#[path = "sync/sums.rs"]
mod sums;
#[path = "sync/waits.rs"]
mod waits;
