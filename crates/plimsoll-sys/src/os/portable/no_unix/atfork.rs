//! Functions that run around each `fork`, which this system does not have.

/// A function that would be called.
pub type Handler = extern "C" fn();

/// Does nothing.
#[inline]
pub fn register(_before: Handler, _in_parent: Handler, _in_child: Handler) {}
