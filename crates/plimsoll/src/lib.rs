//! Exact memory statistics, read without stopping any thread, and always-on profiles of memory,
//! locks, threads and tasks, in the formats of Go's tools. Plimsoll gives a Rust program what Go's
//! runtime gives every Go program, over the allocator, executor and locks that the program uses.
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
//! * [`Alloc`] wraps any allocator: it counts every allocation, samples some of them, and forwards
//!   all of them.
//! * [`heap_stats()`] and [`mem_stats()`] read the counts in some microseconds: all of one instant,
//!   exact to the last operation.
//! * [`measure()`] counts what a closure allocates; [`assert_allocs!`] and [`assert_no_alloc!`] check it
//!   in tests. [`measure::TaskAccount`] counts what tasks allocate. [`dhat`] has the names of the crate
//!   dhat.
//! * [`stats::Backend`] reports the allocator's pages; [`free_os_memory()`] returns free pages to
//!   the system.
//! * [`lock_stats()`] returns how long threads waited for locks and for one another.
//! * [`metrics`] reads every number at once, under Go's names.
//! * [`gc`] connects garbage collectors inside the program with the statistics, the metrics and the
//!   heap profile.
//! * [`profile`] writes the [profiles](profile#kinds) of memory, waits, threads and tasks at any
//!   time, as pprof or text; [`dump()`] writes the state and stack of every thread.
//!   [`profile::Snapshot`], [`thread::threads`] and [`task::tasks`] return the same as records.
//! * [`sync`] wraps the standard library's locks and channels, which then report waits that no hook
//!   observes.
//! * [`http`] serves the profiles under `/debug/pprof/`, as Go does, and metrics for Prometheus under
//!   `/metrics`: `go tool pprof http://127.0.0.1:6060/debug/pprof/heap`.
//! * [`start`] and [`config()`] apply the settings. `PLIMSOLL=http=127.0.0.1:6060` in the environment
//!   is enough; [`Config`] lists the words.
//!
//! # Features
//! * `on` (default): Plimsoll itself. Without it, all of this compiles and does nothing: of the other crates only
//!   `plimsoll-off` is built, [`Alloc`] forwards, wrappers are what they wrap, statistics are zero, no metric is known, and
//!   each profile says that it is *not compiled in*. So a library can use labels, accounts, locks and tracked tasks with
//!   `default-features = false`, and the program that depends on it decides. `http::serve`, pushes,
//!   [`profile::cpu::start`] and limits that are a share of the memory return an error then. Some types are those of the
//!   standard library or of tokio, such as [`sync::Barrier`]: a trait can be implemented for one of the two only.
//! * `interpose` (default): observes waits of locks that do not know Plimsoll, for the block and
//!   mutex profiles, and the creators of threads. Interposes the C library's functions `syscall`, `prctl`,
//!   `vfork`, `pthread_create` and `thrd_create` at link time.
//! * `pthread`: observes waits for locks and conditions of C and C++ code. Interposes
//!   `pthread_mutex_lock` and the other functions, which adds a jump to each call, and some per cent
//!   to an uncontended lock while waits are recorded.
//! * `mmap`: profiles direct callers of `mmap`, for the profile `mmap` and for [`reconcile()`].
//!   Interposes the C library's functions `mmap`, `munmap` and `mremap`. Not for programs that are
//!   built with a sanitizer, which defines functions of the same names.
//! * `http` (default): the server. Without it, [`http::handle`] still answers for a server of the
//!   program.
//! * `symbolize` (default): files, lines and inlined calls from debug information. Without it,
//!   profiles use the names of the symbol table.
//! * `tower`: `http::service`, the pages as a service of tower, for servers on tokio.
//! * `axum`: `http::router` for axum; includes `tower`.
//! * `jemalloc`, `mimalloc`: [`stats::backend`](mod@stats::backend) contains that allocator, which
//!   reports its pages.
//! * `lock_api`: the locks of [`sync`] over those of any crate that implements `lock_api`'s traits,
//!   such as parking_lot.
//! * `tokio`: `sync::tokio`, tokio's locks and channels, which report which tasks wait for which;
//!   `task::spawn`, `task::spawn_local` and `task::JoinSet`, whose tasks are tracked. Needs tokio
//!   1.54.
//! * `hyper`: `task::Executor`, which tracks the tasks that hyper spawns.
//! * `tracing`: `label::TracingLayer`, which turns spans into labels.
//! * `push`: `push`, which sends profiles to a Pyroscope server in intervals. `otlp`: also to collectors
//!   of OpenTelemetry; includes `push`.
//! * `bridge-metrics`, `bridge-prometheus-client`, `bridge-opentelemetry`: `bridge`, the metrics in
//!   the crate `metrics`, in `prometheus-client`, and in OpenTelemetry.
//!
//! # What it does not see
//! * Memory that C code takes from its own allocator is part of the resident memory ([`reconcile()`]), without stacks.
//!   `plimsoll run` profiles programs in any language.
//! * Tasks that are not tracked appear as the threads that run them.
//! * A lock that spins, without a call to the kernel, is not in the block and mutex profiles, unless it is one of [`sync`].
//! * Frames of the kernel are not in stacks: a system call's time is its caller's.
//!
//! # Systems
//! Linux with glibc on x86-64 is tested. Plimsoll compiles on every system with the standard library.
//! A part that the system lacks returns empty profiles and zeros, and [`start`] names it in one
//! warning. `docs/reference/platforms.md` lists what works where.

// Code that only modules of Linux use is compiled everywhere.
#![cfg_attr(
    not(all(target_os = "linux", not(plimsoll_portable_os))),
    allow(dead_code, unused_imports)
)]

#[cfg(feature = "on")]
mod config;
#[cfg(feature = "on")]
pub mod history;

#[cfg(feature = "on")]
mod dump;
#[cfg(feature = "on")]
mod elsewhere;
#[cfg(feature = "on")]
pub mod gc;
#[cfg(feature = "on")]
pub mod http;
#[cfg(feature = "on")]
pub mod label;
#[cfg(feature = "on")]
pub mod measure;
#[cfg(feature = "on")]
pub mod metrics;
#[cfg(all(feature = "on", target_os = "linux", not(plimsoll_portable_os)))]
mod postmortem;
#[cfg(all(
    feature = "on",
    not(all(target_os = "linux", not(plimsoll_portable_os)))
))]
#[path = "postmortem/absent.rs"]
mod postmortem;
#[cfg(feature = "on")]
pub mod preload;
#[cfg(feature = "on")]
pub mod profile;
#[cfg(feature = "on")]
mod signal_request;
#[cfg(feature = "on")]
mod startup;
#[cfg(feature = "on")]
pub mod stats;
#[cfg(feature = "on")]
pub mod task;
#[cfg(feature = "on")]
pub mod thread;

#[cfg(feature = "on")]
pub use config::{Config, Plimsoll, config, start};
#[cfg(feature = "on")]
pub use dump::dump;
#[cfg(feature = "on")]
pub use elsewhere::*;
#[cfg(not(feature = "on"))]
pub use plimsoll_off::*;
