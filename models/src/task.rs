//! Slots of tasks, and readings of them.

#[path = "../../crates/plimsoll/src/task/inner.rs"]
mod inner;
#[path = "../../crates/plimsoll/src/task/loom_models.rs"]
mod loom_models;
#[path = "../../crates/plimsoll/src/task/records.rs"]
mod records;
#[path = "../../crates/plimsoll/src/task/slab.rs"]
mod slab;
#[path = "../../crates/plimsoll/src/task/slot/mod.rs"]
mod slot;
#[path = "../../crates/plimsoll/src/task/snapshot.rs"]
mod snapshot;
#[path = "../../crates/plimsoll/src/task/watched.rs"]
mod watched;
