//! Locks and conditions of C and C++ code, in libraries that these tests build and load. The
//! profiles show them, and otherwise they behave as without Plimsoll.
#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

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
use crate::sync::scene;
#[path = "pthread/sums.rs"]
mod sums;
#[path = "pthread/threads.rs"]
mod threads;
