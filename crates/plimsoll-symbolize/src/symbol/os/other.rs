//! Systems without `mmap`.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// A whole file, read into memory.
pub(in super::super) struct MappedFile(Vec<u8>);

impl MappedFile {
    /// Reads the file at `path`. Returns `None` if it is unreadable, empty, or not a regular file.
    pub(in super::super) fn open(path: &Path) -> Option<Self> {
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let bytes = std::fs::read(path).ok()?;
        (!bytes.is_empty()).then_some(Self(bytes))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the path that these bytes of a file or of the loader name.
pub(in super::super) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}
