//! Other systems, on which no signal requests work.

use std::io;

use super::Signal;

/// Returns an error.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub(crate) fn on(_signal: Signal, _work: fn()) -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "not available on this system",
    ))
}
