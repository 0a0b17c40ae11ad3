//! x
#![allow(dead_code)]
pub(crate) mod ledger;
pub(crate) mod primitives;

#[cfg(not(loom))]
pub mod alloc;
#[cfg(not(loom))]
pub(crate) mod os;
#[cfg(not(loom))]
pub(crate) mod own;
#[cfg(not(loom))]
pub mod profile;
#[cfg(not(loom))]
pub(crate) mod sampler;
#[cfg(not(loom))]
pub(crate) mod settings;
#[cfg(not(loom))]
pub(crate) mod stack;

#[cfg(not(loom))]
pub use alloc::Alloc;
#[cfg(not(loom))]
pub mod stats;
#[cfg(not(loom))]
pub use alloc::size_class;
#[cfg(not(loom))]
pub use stats::{HeapStats, MemStats, heap_stats, mem_stats};
#[cfg(not(loom))]
pub(crate) mod symbol;
