//! Unix systems: files are mapped.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use plimsoll_sys::os::filter;

/// A whole file, mapped. Its pages belong to the system's page cache, not to this process's private
/// memory.
pub(in super::super) struct MappedFile {
    start: *const u8,
    length: usize,
}

impl MappedFile {
    /// Maps the file at `path`. Returns `None` if it is unreadable, empty, or not a regular file.
    pub(in super::super) fn open(path: &Path) -> Option<Self> {
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
        Self::map(&file)
    }

    fn map(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let length = usize::try_from(metadata.len())
            .ok()
            .filter(|&length| length != 0)?;
        let (access, way) = (libc::PROT_READ, libc::MAP_PRIVATE);
        // SAFETY: creates a mapping at an address that the kernel chooses, of a file that is open.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                access,
                way,
                file.as_raw_fd(),
                0,
            )
        };
        (start != libc::MAP_FAILED).then_some(Self {
            start: start.cast(),
            length,
        })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `map` mapped `length` readable bytes at `start`, and only `drop` unmaps them. A
        // process that overwrites a program file in use breaks the running program as well. All
        // code that reads these bytes checks them.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
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
    fn a_file_is_mapped_whole_and_other_paths_are_refused() {
        let program = MappedFile::open(Path::new("/proc/self/exe")).unwrap();
        assert!(*program == *std::fs::read("/proc/self/exe").unwrap());
        assert!(MappedFile::open(Path::new("/")).is_none());
        assert!(MappedFile::open(Path::new("/dev/null")).is_none());
        assert!(MappedFile::open(Path::new("")).is_none());
        let directory = std::env::temp_dir();
        let pipe = directory.join(format!("plimsoll-pipe-{}", std::process::id()));
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let opened = MappedFile::open(&pipe).is_some();
        std::fs::remove_file(&pipe).unwrap();
        assert!(!opened, "and it did not wait for a writer");
    }
}
