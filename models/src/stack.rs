//! The modelled parts of the event table.

#[path = "../../crates/plimsoll-core/src/stack/epochs.rs"]
mod epochs;
#[path = "../../crates/plimsoll-core/src/stack/heap_cycle.rs"]
mod heap_cycle;
#[path = "../../crates/plimsoll-core/src/stack/loom_models.rs"]
mod loom_models;

/// A stack's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackName(pub(crate) u32);
