//! Systems without positions in calls that read files.

use std::io;
use std::path::{Path, PathBuf};

/// A whole file, read into memory.
pub(in super::super) struct OpenFile(Vec<u8>);

impl OpenFile {
    /// Reads the file at `path`, and returns it with its length. Returns `None` if it is unreadable, empty, or not
    /// a regular file.
    pub(in super::super) fn open(path: &Path) -> Option<(Self, u64)> {
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        let length = bytes.len() as u64;
        (length != 0).then_some((Self(bytes), length))
    }

    /// Reads bytes at a position.
    pub(in super::super) fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let mut from = self.0.get(at..).unwrap_or(&[]);
        io::Read::read(&mut from, to)
    }
}

/// Returns the path that these bytes of a file or of the loader name.
pub(in super::super) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}
