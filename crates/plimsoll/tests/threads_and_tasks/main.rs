//! Threads and tasks: their profiles, states and leaks.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

mod chain;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod cpu_profile;
mod dump;
mod executors;
mod leaks;
mod long_polls;
#[cfg(feature = "tokio")]
mod spawn;
mod task_metrics;
mod task_profile;
mod tasks;
mod thread_spawn;
mod threadcreate;
mod threads;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod wall_profile;
