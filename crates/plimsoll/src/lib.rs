//! x
pub(crate) mod ledger;
pub(crate) mod primitives;

#[cfg(not(loom))]
mod alloc;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod export;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
pub mod http;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
mod os;
#[cfg(not(loom))]
mod own;
#[cfg(not(loom))]
pub mod profile;
#[cfg(not(loom))]
mod sampler;
#[cfg(not(loom))]
mod settings;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
mod startup;
#[cfg(not(loom))]
pub mod stats;
#[cfg(not(loom))]
mod symbol;

#[cfg(not(loom))]
pub use alloc::{Alloc, size_class};
#[cfg(not(loom))]
pub use config::{Config, Plimsoll, config, start};
#[cfg(not(loom))]
pub use stats::{HeapStats, MemStats, heap_stats, mem_stats};
