//! What the system tells of a thread of this process, under `/proc/self/task`.

use std::ffi::CStr;
use std::io::Write;

use super::syscall::{call, call3};

/// The directory, which has one of each thread. Kept open, so that finding a file is quick.
pub(crate) struct TaskDirectory(Descriptor);

/// An open file about a thread. It can be read again and again, and says each time how it is then.
pub(crate) struct TaskFile(Descriptor);

struct Descriptor(usize);

/// How many threads the process has: the system links each from its directory. `None` if there is
/// no `/proc`.
pub(crate) fn threads() -> Option<usize> {
    // SAFETY: a path that ends with a zero, and a struct for which zeros are a value.
    let links = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let found = libc::stat(c"/proc/self/task".as_ptr(), &raw mut status);
        (found == 0).then_some(status.st_nlink)
    };
    // The directory itself, and its name in the one above.
    usize::try_from(links?).ok()?.checked_sub(2)
}

impl TaskDirectory {
    /// # Errors
    /// The system's error number: `ENOENT` if there is no `/proc`.
    pub(crate) fn open() -> Result<Self, i32> {
        let directory = libc::O_RDONLY | libc::O_DIRECTORY;
        Descriptor::open(libc::AT_FDCWD as usize, c"/proc/self/task", directory).map(Self)
    }

    /// Opens the file of that name about a thread.
    ///
    /// # Errors
    /// The system's error number: `ENOENT` if there is no such thread.
    pub(crate) fn file(&self, thread: i32, name: &str) -> Result<TaskFile, i32> {
        let mut path = [0u8; 48];
        // All zeros behind it.
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
        // SAFETY: the path ends with a zero.
        let opened = unsafe { call(libc::SYS_openat, arguments) };
        usize::try_from(opened)
            .map(Self)
            .map_err(|_| -opened as i32)
    }
}

impl TaskFile {
    /// Reads it from its beginning, as much as there is room for.
    ///
    /// # Errors
    /// The system's error number: `ESRCH` if the thread has ended.
    pub(crate) fn read<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], i32> {
        let arguments = [
            self.0.0,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
            0,
            0,
            0,
        ];
        // SAFETY: fills the buffer, or fails to.
        let read = unsafe { call(libc::SYS_pread64, arguments) };
        match usize::try_from(read) {
            Ok(length) => Ok(&buffer[..length]),
            Err(_) => Err(-read as i32),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: a descriptor of its own.
        unsafe { call3(libc::SYS_close, self.0, 0, 0) };
    }
}
