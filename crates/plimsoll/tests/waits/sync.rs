//! The primitives of `plimsoll::sync`: they report to the profiles, and otherwise behave as those
//! of the standard library.

#[path = "sync/blame.rs"]
mod blame;
#[path = "sync/let_in.rs"]
mod let_in;
#[path = "sync/names.rs"]
mod names;
#[path = "sync/scene.rs"]
pub mod scene;
#[path = "sync/signatures.rs"]
mod signatures;
#[path = "sync/sums.rs"]
mod sums;
#[path = "sync/waits.rs"]
mod waits;
