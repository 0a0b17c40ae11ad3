//! Files about threads of this process, under `/proc/self/task`.

use std::ffi::CStr;
use std::io::Write;

use super::syscall::{call, call3};

/// The directory with one subdirectory per thread. It is kept open, for fast lookups.
pub struct TaskDirectory(Descriptor);

/// An open file about a thread. It can be read repeatedly; each read returns the current state.
pub struct TaskFile(Descriptor);

struct Descriptor(usize);

/// Returns the number of threads of the process: the link count of its task directory, less 2.
/// `None` without `/proc`.
pub fn threads() -> Option<usize> {
    // SAFETY: the path is NUL-terminated, and zeros are a valid `stat`.
    let links = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let path = c"/proc/self/task".as_ptr() as usize;
        let directory = libc::AT_FDCWD as usize;
        let arguments = [directory, path, &raw mut status as usize, 0, 0, 0];
        let found = call(libc::SYS_newfstatat, arguments);
        (found == 0).then_some(status.st_nlink)
    };
    // Two links are the directory's own entry and its name in the parent directory.
    usize::try_from(links?).ok()?.checked_sub(2)
}

impl TaskDirectory {
    /// Opens the directory.
    ///
    /// # Errors
    /// The system's error number: `ENOENT` without `/proc`.
    #[inline]
    pub fn open() -> Result<Self, i32> {
        let directory = libc::O_RDONLY | libc::O_DIRECTORY;
        Descriptor::open(libc::AT_FDCWD as usize, c"/proc/self/task", directory).map(Self)
    }

    /// Opens the file `name` about a thread.
    ///
    /// # Errors
    /// The system's error number: `ENOENT` if the thread does not exist.
    #[inline]
    pub fn file(&self, thread: i32, name: &str) -> Result<TaskFile, i32> {
        let mut path = [0u8; 48];
        // The rest of the buffer is zero, so the path is NUL-terminated.
        let written = write!(&mut path[..47], "{thread}/{name}");
        written.map_err(|_| libc::ENAMETOOLONG)?;
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::ENAMETOOLONG)?;
        Descriptor::open(self.0.0, path, libc::O_RDONLY).map(TaskFile)
    }
}

impl Descriptor {
    fn open(directory: usize, path: &CStr, flags: i32) -> Result<Self, i32> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        let arguments = [directory, path.as_ptr() as usize, flags, 0, 0, 0];
        // SAFETY: the path is NUL-terminated, and the flags do not create files.
        let opened = unsafe { call(libc::SYS_openat, arguments) };
        usize::try_from(opened)
            .map(Self)
            .map_err(|_| -opened as i32)
    }
}

impl TaskFile {
    /// Reads the file from its beginning, at most the length of `buffer`.
    ///
    /// # Errors
    /// The system's error number: `ESRCH` if the thread has ended.
    pub fn read<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], i32> {
        let arguments = [
            self.0.0,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
            0,
            0,
            0,
        ];
        // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
        let read = unsafe { call(libc::SYS_pread64, arguments) };
        match usize::try_from(read) {
            Ok(length) => Ok(&buffer[..length]),
            Err(_) => Err(-read as i32),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor, which is not used after this.
        unsafe { call3(libc::SYS_close, self.0, 0, 0) };
    }
}
