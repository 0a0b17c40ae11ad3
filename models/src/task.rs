//! Slots of tasks, and readings of them.

#[path = "../../crates/plimsoll-tasks/src/task/inner.rs"]
mod inner;
#[path = "../../crates/plimsoll-tasks/src/task/loom_models.rs"]
mod loom_models;
#[path = "../../crates/plimsoll-tasks/src/task/records.rs"]
mod records;
#[path = "../../crates/plimsoll-tasks/src/task/slab.rs"]
mod slab;
#[path = "../../crates/plimsoll-tasks/src/task/slot/mod.rs"]
mod slot;
#[path = "../../crates/plimsoll-tasks/src/task/snapshot.rs"]
mod snapshot;
#[path = "../../crates/plimsoll-tasks/src/task/watched.rs"]
mod watched;
