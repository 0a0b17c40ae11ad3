//! Threads and tasks: their profiles, states and leaks.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

mod accounts;
#[cfg(not(plimsoll_sanitized))]
mod chain;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod cpu_profile;
mod dump;
#[cfg(not(plimsoll_sanitized))]
mod executors;
#[cfg(not(plimsoll_sanitized))]
mod leaks;
#[cfg(not(plimsoll_sanitized))]
mod long_polls;
#[cfg(feature = "tokio")]
mod spawn;
mod task_metrics;
#[cfg(not(plimsoll_sanitized))]
mod task_profile;
mod tasks;
mod thread_spawn;
mod threadcreate;
mod threads;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os), feature = "http"))]
mod wall_profile;
