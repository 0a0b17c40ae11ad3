//! Limits on the size of files, which this system does not have.

use std::io;

/// Calls `write`.
///
/// # Errors
/// Those of `write`.
#[inline]
pub fn without_signal<R>(write: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    write()
}
