//! Unix systems.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use plimsoll_sys::os::filter;

/// A regular file.
pub(in super::super) struct OpenFile(File);

impl OpenFile {
    /// Opens the file at `path`, and returns it with its length. Returns `None` if it is unreadable, empty, or not
    /// a regular file.
    pub(in super::super) fn open(path: &Path) -> Option<(Self, u64)> {
        if !filter::may_read_files() {
            return None;
        }
        // Opening a device may have side effects.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        // If `path` is a FIFO, opening it must not block until a writer appears.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
            .ok()?;
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let length = metadata.len();
        (length != 0).then_some((Self(file), length))
    }

    /// Reads bytes at a position.
    pub(in super::super) fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(to, at)
    }
}

/// Returns the path that these bytes of a file or of the loader name.
pub(in super::super) fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn a_regular_file_is_opened_and_other_paths_are_refused() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let (file, length) = OpenFile::open(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(length, program.len() as u64);
        let mut bytes = vec![0; 100];
        assert_eq!(file.read_at(&mut bytes, 1000).unwrap(), 100);
        assert_eq!(bytes, program[1000..1100]);
        let opens = |path: &Path| OpenFile::open(path).is_some();
        assert!(!opens(Path::new("/")));
        assert!(!opens(Path::new("/dev/null")));
        assert!(!opens(Path::new("")));
        let directory = std::env::temp_dir();
        let pipe = directory.join(format!("plimsoll-pipe-{}", std::process::id()));
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let opened = opens(&pipe);
        std::fs::remove_file(&pipe).unwrap();
        assert!(!opened, "and it did not wait for a writer");
    }
}
