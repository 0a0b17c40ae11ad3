//! Descriptors that are closed in the child of a fork, which this system does not have.

/// Does nothing.
#[inline]
pub fn after_fork_in_child() {}
