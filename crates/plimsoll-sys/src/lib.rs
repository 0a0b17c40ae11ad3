//! The system below Plimsoll: system calls, clocks, reserved regions and restartable sequences ([`os`]), instructions of
//! each processor (`arch`), and the atomics and locks of all its code ([`primitives`]).
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.
//!
//! Under `--cfg loom`, `primitives` exports loom's atomics and `os` is a model.

#[cfg(not(loom))]
pub mod arch;
#[cfg(not(loom))]
pub mod hash;
pub mod primitives;

#[cfg(not(loom))]
pub mod os;
#[cfg(loom)]
#[path = "model.rs"]
pub mod os;
