//! Innermost frames of stacks for Plimsoll: which are an allocator's or a lock's, and not shown.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

pub mod leaves;
pub mod shown;
