//! Statistics and profiles of memory, over the system's allocator.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

plimsoll_testkit::process_per_module!();

#[cfg(not(plimsoll_sanitized))]
mod accounts;
mod consistency;
mod declared;
#[cfg(not(plimsoll_sanitized))]
mod dhat_elsewhere;
#[cfg(not(plimsoll_sanitized))]
mod fragmentation_unavailable;
#[cfg(not(plimsoll_sanitized))]
mod free_os_memory;
mod heap_profile;
#[cfg(not(plimsoll_sanitized))]
mod lifetimes;
#[cfg(not(plimsoll_sanitized))]
mod line_tables;
#[cfg(all(feature = "mmap", not(plimsoll_sanitized)))]
mod mappings;
#[path = "../suite/measure.rs"]
mod measure;
#[cfg(not(plimsoll_sanitized))]
mod measured;
#[cfg(not(plimsoll_sanitized))]
mod memory_limit;
#[cfg(not(plimsoll_sanitized))]
mod memory_profile;
mod over_system;
#[cfg(not(plimsoll_sanitized))]
mod peak;
#[cfg(not(plimsoll_sanitized))]
#[path = "../suite/probes.rs"]
mod probes;
#[cfg(not(plimsoll_sanitized))]
mod reconcile;
#[cfg(not(plimsoll_sanitized))]
mod sampling;
#[cfg(not(plimsoll_sanitized))]
mod stacks;
#[cfg(not(plimsoll_sanitized))]
mod types;
#[cfg(not(plimsoll_sanitized))]
mod vars;
