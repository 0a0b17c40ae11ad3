//! Exact memory statistics that are read without stopping anyone, and profiles that are always
//! there, in the formats that Go's tools read: what Go's runtime gives every Go program, for a Rust
//! program, over the allocator that it uses already.
//!
//! ```
//! #[global_allocator]
//! static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
//!
//! fn main() {
//!     let before = plimsoll::heap_stats();
//!     let block = vec![0u8; 1000];
//!     let after = plimsoll::heap_stats();
//!     assert_eq!(after.mallocs - before.mallocs, 1);
//!     assert_eq!(after.live_bytes() - before.live_bytes(), 1000);
//!     drop(block);
//!
//!     // Profiles at http://127.0.0.1:6060/debug/pprof/, if PLIMSOLL=http=127.0.0.1:6060 is set.
//!     let _plimsoll = plimsoll::start();
//! }
//! ```
//!
//! * [`Alloc`] goes in front of any allocator: it counts every allocation, samples some, and passes
//!   all on.
//! * [`heap_stats()`] and [`mem_stats()`] read the counts: some microseconds, all of one instant,
//!   exact to the last operation.
//! * [`stats::Backend`] asks the allocator for the pages around the blocks; [`free_os_memory()`]
//!   has it give free ones back.
//! * [`lock_stats()`] has how long threads waited for locks, and for one another.
//! * [`metrics`] has everything that there is a number for, by Go's names, read at once.
//! * [`gc`] is for garbage collectors inside of the program: they become part of the statistics, of
//!   the metrics, and of the heap profile.
//! * [`profile`] has the profiles `heap`, `allocs`, `block`, `mutex`, `goroutine`, `longpoll` and
//!   `threadcreate`, to be written at any time as pprof or text; [`dump()`] says what every thread
//!   is doing. [`profile::Snapshot`], [`thread::threads`] and [`task::tasks`] have the same as
//!   records.
//! * [`sync`] has the standard library's locks and channels, which tell the profiles `block` and
//!   `mutex` who waits for whom where nothing else can.
//! * [`http`] serves them under `/debug/pprof/`, as Go does: `go tool pprof http://127.0.0.1:6060/debug/pprof/heap`;
//!   and numbers for Prometheus under `/metrics`.
//! * [`start`] and [`config()`] set off what settings ask for. `PLIMSOLL=http=127.0.0.1:6060` in
//!   the environment is enough; see [`Config`] for the words.
//!
//! # Features
//! * `interpose` (default): waits for locks that know nothing of Plimsoll are seen, for the block
//!   and mutex profiles, and who creates threads. Takes over the C library's functions `syscall`
//!   and `pthread_create` when the program is linked.
//! * `pthread`: the same for the locks and conditions of C and C++ code. Takes over
//!   `pthread_mutex_lock` and its like, which adds a jump to each call, and some per cent to a lock
//!   that nobody waits for while something is recorded.
//! * `mmap`: who maps memory by himself, for the profile `mmap` and for [`reconcile()`]. Takes over
//!   the C library's functions `mmap`, `munmap` and `mremap`. Not for programs that are built with
//!   a sanitizer, which has functions of the same names.
//! * `http` (default): the server. Without it, [`http::handle`] still answers for a server of the
//!   program's own.
//! * `symbolize` (default): files, lines and inlined calls from debug information. Without it,
//!   profiles have the names of the symbol table.
//! * `axum`: `http::router` for axum.
//! * `jemalloc`, `mimalloc`: [`stats::backend`](mod@stats::backend) has that allocator, with what
//!   it can tell of its pages.
//! * `lock_api`: [`sync`]'s locks around those of any crate that has `lock_api`'s traits, such as
//!   parking_lot.
//! * `tokio`: `sync::tokio`, tokio's locks and channels, which say which tasks wait for whom, and
//!   `task::spawn`, `task::spawn_local` and `task::JoinSet`, whose tasks are tracked. Needs tokio
//!   1.54.
//! * `hyper`: `task::Executor`, which tracks what hyper spawns.
//! * `tracing`: `label::TracingLayer`, which makes labels of spans.
//! * `bridge-metrics`, `bridge-prometheus-client`, `bridge-opentelemetry`: `bridge`, which has the
//!   metrics in the crate `metrics`, in `prometheus-client`, and in OpenTelemetry.
//!
//! # Systems
//! Linux with glibc, on x86-64, is what it is tested on. The counting and the profiles are written
//! to work on other Linux systems, with the portable protocols of the ledger and unwinding by frame
//! pointers only; that is not tested.

pub(crate) mod ledger;
pub(crate) mod primitives;

#[cfg(not(loom))]
mod alloc;
#[cfg(all(
    any(
        feature = "bridge-metrics",
        feature = "bridge-opentelemetry",
        feature = "bridge-prometheus-client"
    ),
    not(loom)
))]
pub mod bridge;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod contention;
#[cfg(loom)]
mod model;
#[cfg(loom)]
use model::os;

/// What there is a model of.
#[cfg(loom)]
#[allow(dead_code)]
mod stack {
    mod cuts;
    mod heap_cycle;
    mod loom_models;

    pub(crate) use crate::model::StackName;
}

/// What there is a model of.
#[cfg(loom)]
mod contention {
    #[allow(dead_code)]
    mod kind;
    mod loom_models;
    #[allow(dead_code)]
    mod waiters;

    use kind::WaitKind;
}
/// What there is a model of.
#[cfg(loom)]
#[allow(dead_code)]
mod task {
    mod cut;
    mod inner;
    mod loom_models;
    mod records;
    mod slab;
    mod slot;
    mod watched;
}
#[cfg(not(loom))]
mod dump;
#[cfg(not(loom))]
mod escape;
#[cfg(not(loom))]
mod export;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
pub mod gc;
#[cfg(all(feature = "interpose", not(loom)))]
mod hook;
#[cfg(not(loom))]
pub mod http;
#[cfg(not(loom))]
mod keeper;
#[cfg(not(loom))]
pub mod label;
#[cfg(not(loom))]
mod leak;
#[cfg(all(feature = "mmap", not(loom)))]
mod mappings;
#[cfg(all(not(feature = "mmap"), not(loom)))]
#[path = "mappings/absent.rs"]
mod mappings;
#[cfg(not(loom))]
mod memory_limit;
#[cfg(not(loom))]
pub mod metrics;
#[cfg(not(loom))]
mod os;
#[cfg(not(loom))]
mod own;
#[cfg(not(loom))]
mod own_mutex;
#[cfg(not(loom))]
mod own_thread;
#[cfg(not(loom))]
mod own_time;
#[cfg(all(feature = "offline", not(loom)))]
#[doc(hidden)]
pub mod postmortem;
#[cfg(all(not(feature = "offline"), not(loom)))]
mod postmortem;
#[cfg(all(feature = "preload", not(loom)))]
#[doc(hidden)]
pub mod preload;
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
pub mod sync;
#[cfg(not(loom))]
pub mod task;
#[cfg(not(loom))]
pub mod thread;

#[cfg(not(loom))]
pub use alloc::{Alloc, SamplingAlloc, size_class};
#[cfg(not(loom))]
pub use config::{Config, Plimsoll, config, start};
#[cfg(not(loom))]
pub use dump::dump;
#[cfg(not(loom))]
pub use memory_limit::{
    MemoryLimit, MemoryLimitError, MemoryPressure, MemoryThreshold, on_memory_threshold,
    set_memory_limit,
};
#[cfg(all(feature = "jemalloc", not(loom)))]
pub use stats::backend::Jemalloc;
#[cfg(all(feature = "mimalloc", not(loom)))]
pub use stats::backend::MiMalloc;
#[cfg(not(loom))]
pub use stats::{
    CpuStats, GcStats, HeapStats, Histogram, LockStats, MappingStats, MemStats, cpu_stats,
    free_os_memory, gc_stats, heap_stats, lock_stats, mapping_stats, mem_stats, reconcile,
};
#[cfg(all(feature = "offline", not(loom)))]
#[doc(hidden)]
pub use {settings::grammar, symbol::offline};
