//! The table of waiters.

#[path = "../../crates/plimsoll/src/contention/kind.rs"]
mod kind;
#[path = "../../crates/plimsoll/src/contention/loom_models.rs"]
mod loom_models;
#[path = "../../crates/plimsoll/src/contention/waiters/mod.rs"]
mod waiters;

use kind::WaitKind;
