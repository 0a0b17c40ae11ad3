//! The API of [`plimsoll`](https://docs.rs/plimsoll) without its work, for programs that are built without its feature
//! `on`.
//!
//! What counts or records does nothing, what reads returns nothing, and what wraps forwards. What was asked for and
//! cannot be had, such as a server, is an error that says so. The items are documented where they work, in `plimsoll`.
#![cfg(not(feature = "empty"))]
#![allow(missing_docs)]

mod alloc;
#[cfg(any(
    feature = "bridge-metrics",
    feature = "bridge-opentelemetry",
    feature = "bridge-prometheus-client"
))]
pub mod bridge;
mod config;
pub mod dhat;
mod dump;
pub mod gc;
pub mod history;
pub mod http;
pub mod label;
pub mod measure;
mod memory_limit;
pub mod metrics;
mod notice;
pub mod profile;
#[cfg(feature = "push")]
pub mod push;
pub mod size_class;
pub mod stats;
pub mod sync;
pub mod task;
pub mod thread;

pub use alloc::{Alloc, SamplingAlloc};
pub use config::{Config, Plimsoll, config, start};
pub use dump::dump;
pub use measure::measure;
pub use memory_limit::{
    MemoryLimit, MemoryLimitError, MemoryPressure, MemoryThreshold, on_memory_threshold,
    set_memory_limit,
};
#[cfg(feature = "jemalloc")]
pub use stats::backend::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use stats::backend::MiMalloc;
pub use stats::{
    CpuStats, GcStats, HeapStats, Histogram, LockStats, MappingStats, MemStats, cpu_stats,
    free_os_memory, gc_stats, heap_stats, lock_stats, mapping_stats, mem_stats, reconcile,
};
