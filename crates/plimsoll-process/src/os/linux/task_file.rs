//! Files about threads of this process, under `/proc/self/task`.
//!
//! A mount of `/proc` has the numbers of the PID namespace in which it was made. A process of an inner namespace may
//! have the outer one's mount; system calls then know the threads by other numbers. All numbers here are those of
//! system calls.

use std::ffi::CStr;
use std::io::Write;

use plimsoll_sys::os::syscall::{call, call3};
use plimsoll_sys::os::{files, thread_id};

/// The path of the directory.
const PATH: &CStr = c"/proc/self/task";

/// The directory with one subdirectory per thread. It is kept open, for fast lookups.
pub struct TaskDirectory {
    directory: Descriptor,
    /// The number of each thread, and the name of its subdirectory, if these differ.
    renumbered: Option<Vec<(i32, i32)>>,
}

/// An open file about a thread. It can be read repeatedly; each read returns the current state.
pub struct TaskFile(Descriptor);

struct Descriptor(usize);

/// Returns the number of threads of the process: the link count of its task directory, less 2.
/// `None` without `/proc`.
pub fn threads() -> Option<usize> {
    // SAFETY: the path is NUL-terminated, and zeros are a valid `stat`.
    let links = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let path = PATH.as_ptr() as usize;
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
        let directory = Descriptor::open(libc::AT_FDCWD as usize, PATH, directory)?;
        let mut tasks = Self {
            directory,
            renumbered: None,
        };
        if has_other_numbers() {
            tasks.renumbered = Some(tasks.renumber());
        }
        Ok(tasks)
    }

    /// Returns the numbers of all threads; `None` if the system does not list them.
    pub fn threads(&self) -> Option<Vec<i32>> {
        match &self.renumbered {
            Some(all) => Some(all.iter().map(|&(thread, _)| thread).collect()),
            None => subdirectories(),
        }
    }

    /// Reads the number of each thread in this process's namespace from its file.
    fn renumber(&self) -> Vec<(i32, i32)> {
        let number = |name: i32| {
            let mut buffer = [0; 4096];
            let file = self.open_file(name, "status").ok()?;
            let text = String::from_utf8_lossy(file.read(&mut buffer).ok()?);
            // One number for each namespace, from the mount's to the thread's.
            let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
            let number = line.split_ascii_whitespace().last()?;
            Some((number.parse().ok()?, name))
        };
        let names = subdirectories().unwrap_or_default();
        names.into_iter().filter_map(number).collect()
    }

    /// Opens the file `name` about a thread.
    ///
    /// # Errors
    /// The system's error number: `ENOENT` if the thread does not exist.
    #[inline]
    pub fn file(&self, thread: i32, name: &str) -> Result<TaskFile, i32> {
        let Some(all) = &self.renumbered else {
            return self.open_file(thread, name);
        };
        let found = all.iter().find(|&&(number, _)| number == thread);
        let &(_, directory) = found.ok_or(libc::ENOENT)?;
        self.open_file(directory, name)
    }

    fn open_file(&self, thread: i32, name: &str) -> Result<TaskFile, i32> {
        let mut path = [0u8; 48];
        // The rest of the buffer is zero, so the path is NUL-terminated.
        let written = write!(&mut path[..47], "{thread}/{name}");
        written.map_err(|_| libc::ENAMETOOLONG)?;
        let path = CStr::from_bytes_until_nul(&path).map_err(|_| libc::ENAMETOOLONG)?;
        Descriptor::open(self.directory.0, path, libc::O_RDONLY).map(TaskFile)
    }
}

/// Returns whether `/proc` has another number for the calling thread than system calls have.
fn has_other_numbers() -> bool {
    let Ok(link) = files::read_link("/proc/thread-self") else {
        return false;
    };
    let number = link
        .file_name()
        .and_then(|name| name.to_str()?.parse().ok());
    number.is_some_and(|number: i32| number != thread_id())
}

fn subdirectories() -> Option<Vec<i32>> {
    let entries = files::read_dir("/proc/self/task").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(names.collect())
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
