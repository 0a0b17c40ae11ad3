//! Other systems, on which no signal requests a dump.

use std::io;

/// Returns an error.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub(crate) fn on_sigquit() -> io::Result<()> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "not available on this system",
    ))
}
