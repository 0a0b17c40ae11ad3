//! Files, read in place.

use std::fs::{File, OpenOptions};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A whole file, mapped: what is read of it is the system's page cache and not this process's
/// memory.
pub(super) struct MappedFile {
    start: *const u8,
    length: usize,
}

impl MappedFile {
    /// `None` if it cannot be read, is empty, or is not a regular file.
    pub(super) fn open(path: &Path) -> Option<Self> {
        // Opening a device may have effects.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        // A pipe at that path must not make the caller wait for a writer.
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
        // SAFETY: a new mapping, anywhere, of an open file.
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
        // SAFETY: mapped and readable until it is dropped. Whoever writes to a program file that is
        // in use breaks the running program as well; what is read here is bytes that are checked
        // anyway.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no slice of it outlives `self`.
        unsafe { libc::munmap(self.start.cast_mut().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_file_is_mapped_whole_and_what_is_no_file_is_refused() {
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
