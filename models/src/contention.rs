//! The table of waiters.

#[path = "../../crates/plimsoll-waits/src/contention/kind.rs"]
mod kind;
#[path = "../../crates/plimsoll-waits/src/contention/loom_models.rs"]
mod loom_models;
#[path = "../../crates/plimsoll-waits/src/contention/waiters/mod.rs"]
mod waiters;

use kind::WaitKind;
