//! Files that Plimsoll reads. Not for hooks: these functions allocate.

pub use std::fs::{canonicalize as resolve, read, read_dir, read_link, read_to_string};

use std::fs::File;
use std::io;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// The system's error.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}
