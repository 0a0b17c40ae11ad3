//! Locks and conditions of C and C++ code, in libraries that are built here and loaded: what the
//! profiles say of them, and that they are in everything else what they are without.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

mod pprof;

#[path = "pthread/blame.rs"]
mod blame;
#[path = "pthread/c.rs"]
mod c;
#[path = "pthread/conditions.rs"]
mod conditions;
#[path = "pthread/cpp.rs"]
mod cpp;
#[path = "pthread/cpp_locks.rs"]
mod cpp_locks;
#[path = "pthread/kinds.rs"]
mod kinds;
#[path = "pthread/library.rs"]
mod library;
#[path = "pthread/meter.rs"]
mod meter;
#[path = "pthread/processes.rs"]
mod processes;
#[path = "sync/scene.rs"]
mod scene;
#[path = "pthread/sums.rs"]
mod sums;
#[path = "pthread/threads.rs"]
mod threads;
