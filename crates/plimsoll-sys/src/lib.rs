//! The system below Plimsoll: system calls, clocks, reserved regions, restartable sequences and
//! `/proc` readers ([`os`]), instructions of each processor (`arch`), redirection of the program's
//! functions (`redirect`), probes for tracers (`usdt`), and the atomics and locks of all its code
//! ([`primitives`]).
//!
//! This crate is a part of `plimsoll`, which depends on exactly its version. Its interface may
//! change with every version.
//!
//! Under `--cfg loom`, `primitives` exports loom's atomics and `os` is a model.

#[cfg(not(loom))]
pub mod arch;
pub mod deep_stacks;
#[cfg(not(loom))]
pub mod hash;
pub mod primitives;

#[cfg(not(loom))]
pub mod os;
#[cfg(loom)]
#[path = "model.rs"]
pub mod os;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(loom)))]
pub mod redirect;

#[cfg(not(loom))]
pub mod usdt;
