//! Files that Plimsoll reads, in `/proc` and elsewhere, unless a system call filter forbids that. All but
//! [`read_into`] allocate, and are not for hooks.

use std::ffi::{CStr, OsStr, c_char};
use std::fs::{self, File, ReadDir};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::filter;
use super::syscall::{call, call3};

/// Reads the beginning of a file, up to the length of `buffer`. Returns `None` if the file cannot be read.
pub fn read_into<'b>(path: &CStr, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let arguments = [
        // AT_FDCWD is negative; the kernel reads the low 32 bits.
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        (libc::O_RDONLY | libc::O_CLOEXEC) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the path ends with a zero, the kernel writes at most the length of the buffer, and the file is closed
    // once.
    let read = unsafe {
        let file = usize::try_from(call(libc::SYS_openat, arguments)).ok()?;
        let (to, length) = (buffer.as_mut_ptr() as usize, buffer.len());
        let read = call3(libc::SYS_read, file, to, length);
        call3(libc::SYS_close, file, 0, 0);
        read
    };
    Some(&buffer[..usize::try_from(read).ok()?])
}

/// Opens a file for reading.
///
/// # Errors
/// The system's error, or the call that a filter forbids.
pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
    filter::check(&filter::FILES)?;
    File::open(path)
}

/// Reads a whole file.
///
/// # Errors
/// As [`open`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    filter::check(&filter::FILES)?;
    fs::read(path)
}

/// Reads a whole file as text.
///
/// # Errors
/// As [`open`]; also if the file is not UTF-8.
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    filter::check(&filter::FILES)?;
    fs::read_to_string(path)
}

/// Lists a directory.
///
/// # Errors
/// As [`open`].
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<ReadDir> {
    filter::check(&filter::FILES)?;
    fs::read_dir(path)
}

/// Returns the absolute path of an existing file, without links. Unlike the C library's `realpath`, it does not allocate by
/// `malloc`, whose locks another allocator may hold around a fork.
///
/// # Errors
/// As [`open`].
pub fn resolve(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    filter::check(&filter::FILES)?;
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC);
    let file = options.open(path)?;
    read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the target of a link.
///
/// # Errors
/// As [`open`].
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    filter::check(&filter::FILES)?;
    filter::check(&[(libc::SYS_readlinkat, "readlink")])?;
    #[cfg(target_arch = "x86_64")]
    filter::check(&[(libc::SYS_readlink, "readlink")])?;
    fs::read_link(path)
}

/// Returns the path by which the program was executed; `None` if the kernel does not state it.
pub fn executed_path() -> Option<&'static Path> {
    // SAFETY: the call takes a number, and returns 0 or the address of a C string that is never freed.
    let path = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const c_char;
    (!path.is_null()).then(|| {
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(path) };
        Path::new(OsStr::from_bytes(path.to_bytes()))
    })
}

/// Returns the path of the calling process's program: absolute, with the name by which it was executed, whether that is a
/// link or one of several names of the file. A program that was executed by a descriptor, or that is executed by its
/// script, has the name that the kernel states.
///
/// # Errors
/// As [`open`].
pub fn program() -> io::Result<PathBuf> {
    let file = read_link("/proc/self/exe")?;
    Ok(executed_name(&file).unwrap_or(file))
}

fn executed_name(file: &Path) -> Option<PathBuf> {
    let path = executed_path()?;
    let directory = match path.parent()? {
        current if current.as_os_str().is_empty() => Path::new("."),
        directory => directory,
    };
    // Links are resolved up to the name. Names in `/proc`, such as `exe`, are none of the program's.
    let directory = resolve(directory).ok()?;
    let executed = directory.join(path.file_name()?);
    let [one, other] = [&executed, file].map(|path| path.metadata().ok());
    let (one, other) = (one?, other?);
    let is_same = (one.dev(), one.ino()) == (other.dev(), other.ino());
    (is_same && !directory.starts_with("/proc")).then_some(executed)
}
