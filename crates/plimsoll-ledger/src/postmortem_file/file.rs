//! Makes the file, inside the first allocation, with system calls and static memory only.
//!
//! The file is made beside its final name and gets that name when it is complete. An existing file
//! of that name is kept as `FILE.old` if it belongs to a process that has ended; anything else is
//! left alone. A lock on the file shows whether its process lives, also across containers. The
//! system releases it however the process ends.

use std::cell::UnsafeCell;
use std::ffi::c_long;

use plimsoll_postmortem::layout::MAGIC;
use plimsoll_process::file_size;
use plimsoll_sys::os::pages::MADV_POPULATE_WRITE;
use plimsoll_sys::os::pid_namespace;
use plimsoll_sys::os::random;
use plimsoll_sys::os::syscall::{call, call3};

/// Maximum length of a path, with its suffix and a zero.
const LONGEST: usize = 4096;

/// The reason why there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The path is too long.
    TooLong = 1,
    /// The limit on the size of files is too low.
    SizeLimit,
    /// The file could not be made.
    Made,
    /// The file could not be given its size, or mapped.
    Mapped,
    /// The disk has no space for the first parts of the file.
    NoSpace,
    /// A living process uses the file.
    InUse,
    /// The name belongs to a link, or to an object that is not a regular file.
    NoFile,
    /// The name belongs to another kind of file.
    Foreign,
    /// The name with `.old` belongs to another kind of file.
    ForeignOld,
    /// The existing file could not be examined or renamed.
    Kept,
}

/// The reason why there is no file, and the system's error number, or 0.
pub(super) type Refused = (Refusal, i32);

/// Paths, terminated by zeros.
struct Names {
    file: [u8; LONGEST],
    old: [u8; LONGEST],
    beside: [u8; LONGEST],
}

/// The paths in static memory, because the stack of an allocating thread may be small.
struct Shared(UnsafeCell<Names>);

// SAFETY: only `make` uses the names, and it is called once.
unsafe impl Sync for Shared {}

static NAMES: Shared = Shared(UnsafeCell::new(Names {
    file: [0; LONGEST],
    old: [0; LONGEST],
    beside: [0; LONGEST],
}));

/// A file that does not have its final name yet.
pub(super) struct TempFile {
    names: &'static Names,
    pub(super) descriptor: i32,
    pub(super) base: usize,
    length: usize,
}

/// Writes `path` to `to`, with the process number in place of each `%p`, and the number of its namespace in place of
/// each `%n`. Returns the length of the result; `None` if it is too long.
fn expand(path: &str, process: u32, to: &mut [u8; LONGEST]) -> Option<usize> {
    let mut length = 0;
    let mut rest = path.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let number = match behind.first() {
            Some(b'p') if byte == b'%' => Some(u64::from(process)),
            Some(b'n') if byte == b'%' => Some(pid_namespace()),
            _ => None,
        };
        let mut digits = Digits::default();
        let (piece, behind) = match number {
            Some(number) => (digits.write(number), &behind[1..]),
            None => (&rest[..1], behind),
        };
        to.get_mut(length..length + piece.len())?
            .copy_from_slice(piece);
        (length, rest) = (length + piece.len(), behind);
    }
    // Leaves space for the suffix.
    (length + 16 < LONGEST).then_some(length)
}

/// Space for the decimal digits of a number.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn write(&mut self, mut number: u64) -> &[u8] {
        let mut first = self.0.len();
        while number > 0 || first == self.0.len() {
            first -= 1;
            self.0[first] = b'0' + (number % 10) as u8;
            number /= 10;
        }
        &self.0[first..]
    }
}

/// Returns the expanded path, for messages.
pub fn expanded(path: &str, process: u32) -> String {
    let path = path.replace("%p", &process.to_string());
    match path.contains("%n") {
        true => path.replace("%n", &pid_namespace().to_string()),
        false => path,
    }
}

/// Makes the file, with a length, and maps it inaccessible. Must be called at most once.
pub(super) fn make(path: &str, process: u32, length: usize) -> Result<TempFile, Refused> {
    // SAFETY: called once, so no other thread uses the names, and the result only reads them.
    let names = unsafe { &mut *NAMES.0.get() };
    let end = expand(path, process, &mut names.file).ok_or((Refusal::TooLong, 0))?;
    for (name, behind) in [(&mut names.old, &b".old"[..]), (&mut names.beside, b".")] {
        name[..end].copy_from_slice(&names.file[..end]);
        name[end..end + behind.len()].copy_from_slice(behind);
    }
    let random = random::seed();
    for digit in 0..8 {
        let value = (random >> (4 * digit)) & 15;
        names.beside[end + 1 + digit] = b"0123456789abcdef"[value as usize];
    }
    names.beside[end + 9..end + 14].copy_from_slice(b".part");
    // Exceeding it would raise a signal.
    if file_size::limit().is_ok_and(|limit| limit < length as u64) {
        return Err((Refusal::SizeLimit, 0));
    }
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let descriptor = open(&names.beside, flags).map_err(|error| (Refusal::Made, error))?;
    let beside = TempFile {
        names,
        descriptor: out_of_the_way(descriptor),
        base: 0,
        length,
    };
    beside.map()
}

impl TempFile {
    fn map(mut self) -> Result<Self, Refused> {
        let descriptor = self.descriptor as usize;
        // No other process has the file yet, so the lock is free. Where files cannot be locked, it
        // has no lock.
        lock(self.descriptor);
        if let Err(error) = result(libc::SYS_ftruncate, [descriptor, self.length, 0, 0]) {
            return Err(self.give_up((Refusal::Mapped, error)));
        }
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize;
        // SAFETY: the kernel chooses the address of the new mapping.
        let mapped = unsafe {
            let access = libc::PROT_NONE as usize;
            call(
                libc::SYS_mmap,
                [0, self.length, access, flags, descriptor, 0],
            )
        };
        if mapped < 0 {
            return Err(self.give_up((Refusal::Mapped, -mapped as i32)));
        }
        self.base = mapped as usize;
        Ok(self)
    }

    /// Makes a piece accessible, and allocates its disk space. If the system cannot do so for a
    /// piece, allocates the space of the whole file.
    pub(super) fn commit(self, offset: usize, length: usize) -> Result<Self, Refused> {
        let (address, access) = (self.base + offset, libc::PROT_READ | libc::PROT_WRITE);
        let done =
            result(libc::SYS_mprotect, [address, length, access as usize, 0]).and_then(|()| {
                let populated = [address, length, MADV_POPULATE_WRITE, 0];
                match result(libc::SYS_madvise, populated) {
                    // The kernel is too old for `MADV_POPULATE_WRITE`.
                    Err(libc::EINVAL) => {
                        let whole = [self.descriptor as usize, 0, 0, self.length];
                        result(libc::SYS_fallocate, whole)
                    }
                    done => done,
                }
            });
        match done {
            Ok(()) => Ok(self),
            // A later write would have raised `SIGBUS`.
            Err(libc::EFAULT | libc::ENOSPC | libc::EDQUOT) => {
                Err(self.give_up((Refusal::NoSpace, 0)))
            }
            Err(error) => Err(self.give_up((Refusal::Mapped, error))),
        }
    }

    /// Gives the file its name. An existing file becomes `FILE.old`.
    pub(super) fn take_name(self) -> Result<(), Refused> {
        let done = self.names.clear().and_then(|earlier| {
            let renamed = rename_to_nothing(&self.names.beside, &self.names.file);
            if let Some(earlier) = earlier {
                close(earlier);
            }
            renamed.map_err(|error| match error {
                libc::EEXIST => (Refusal::InUse, 0),
                error => (Refusal::Kept, error),
            })
        });
        done.map_err(|refused| self.give_up(refused))
    }

    /// Unmaps, deletes and closes the file.
    fn give_up(self, refused: Refused) -> Refused {
        if self.base != 0 {
            let _ = result(libc::SYS_munmap, [self.base, self.length, 0, 0]);
        }
        let name = self.names.beside.as_ptr() as usize;
        let _ = result(libc::SYS_unlinkat, [CURRENT_DIRECTORY, name, 0, 0]);
        close(self.descriptor);
        refused
    }
}

impl Names {
    /// Renames the existing file. Returns its descriptor, open and locked, if there was one.
    fn clear(&self) -> Result<Option<i32>, Refused> {
        for _ in 0..4 {
            let Some(earlier) = look_at(&self.file, Refusal::Foreign)? else {
                return Ok(None);
            };
            let is_free = lock(earlier);
            if is_free && !is_at(earlier, &self.file) {
                // Another process renamed the file.
                close(earlier);
                continue;
            }
            let done = if is_free {
                self.rename_to_old()
            } else {
                Err((Refusal::InUse, 0))
            };
            match done {
                Ok(()) => return Ok(Some(earlier)),
                Err(refused) => {
                    close(earlier);
                    return Err(refused);
                }
            }
        }
        Err((Refusal::InUse, 0))
    }

    fn rename_to_old(&self) -> Result<(), Refused> {
        if let Some(older) = look_at(&self.old, Refusal::ForeignOld)? {
            close(older);
        }
        let (from, to) = (self.file.as_ptr() as usize, self.old.as_ptr() as usize);
        match result(
            libc::SYS_renameat2,
            [CURRENT_DIRECTORY, from, CURRENT_DIRECTORY, to],
        ) {
            // `plimsoll ship` has moved it away, so the name is free.
            Err(libc::ENOENT) => Ok(()),
            done => done.map_err(|error| (Refusal::Kept, error)),
        }
    }
}

/// Opens the file of that name, if it exists and is empty or a post-mortem file.
fn look_at(name: &[u8; LONGEST], foreign: Refusal) -> Result<Option<i32>, Refused> {
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let descriptor = match open(name, flags) {
        Ok(descriptor) => descriptor,
        Err(libc::ENOENT) => return Ok(None),
        Err(libc::ELOOP | libc::EISDIR | libc::ENXIO) => return Err((Refusal::NoFile, 0)),
        Err(error) => return Err((Refusal::Kept, error)),
    };
    let refused = match status(descriptor) {
        Some(status) if status.st_mode & libc::S_IFMT != libc::S_IFREG => Some(Refusal::NoFile),
        Some(status) if status.st_size == 0 => None,
        Some(_) => {
            let mut begins = [0; MAGIC.len()];
            let to = begins.as_mut_ptr() as usize;
            let read = [descriptor as usize, to, begins.len(), 0];
            let is_ours = result(libc::SYS_pread64, read).is_ok() && begins == MAGIC;
            (!is_ours).then_some(foreign)
        }
        None => Some(Refusal::Kept),
    };
    match refused {
        None => Ok(Some(descriptor)),
        Some(refusal) => {
            close(descriptor);
            Err((refusal, 0))
        }
    }
}

const CURRENT_DIRECTORY: usize = libc::AT_FDCWD as isize as usize;

fn open(name: &[u8; LONGEST], flags: i32) -> Result<i32, i32> {
    const FOR_ITS_OWNER: usize = 0o600;
    // SAFETY: `name` ends with a zero.
    let opened = unsafe {
        let arguments = [
            CURRENT_DIRECTORY,
            name.as_ptr() as usize,
            flags as usize,
            FOR_ITS_OWNER,
            0,
            0,
        ];
        call(libc::SYS_openat, arguments)
    };
    if opened < 0 {
        Err(-opened as i32)
    } else {
        Ok(opened as i32)
    }
}

/// Moves a descriptor to a higher number: programs expect the lowest ones to be inherited, or those
/// that they open first.
fn out_of_the_way(descriptor: i32) -> i32 {
    for least in [100, 3] {
        let command = libc::F_DUPFD_CLOEXEC as usize;
        // SAFETY: makes a new descriptor and affects no other.
        let moved = unsafe { call3(libc::SYS_fcntl, descriptor as usize, command, least) };
        if moved >= 0 {
            close(descriptor);
            return moved as i32;
        }
    }
    descriptor
}

/// Closes a descriptor, unless it is negative.
pub fn close(descriptor: i32) {
    if descriptor < 0 {
        return;
    }
    let _ = result(libc::SYS_close, [descriptor as usize, 0, 0, 0]);
}

/// Locks a file for as long as it is open. Returns false if another process holds the lock. A
/// reader can test the lock without taking it, so it disturbs no other reader.
fn lock(descriptor: i32) -> bool {
    let how = whole_file();
    let lock = [
        descriptor as usize,
        libc::F_OFD_SETLK as usize,
        &raw const how as usize,
        0,
    ];
    !matches!(
        result(libc::SYS_fcntl, lock),
        Err(libc::EAGAIN | libc::EACCES)
    )
}

fn whole_file() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Returns the device and the inode of an open file; zeros if they cannot be read.
pub(super) fn identity(descriptor: i32) -> [u64; 2] {
    status(descriptor).map_or([0; 2], |status| [status.st_dev, status.st_ino])
}

fn status(descriptor: i32) -> Option<libc::stat> {
    // SAFETY: all zeros is a valid `stat`, which the system fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let to = &raw mut status as usize;
        (call3(libc::SYS_fstat, descriptor as usize, to, 0) == 0).then_some(status)
    }
}

/// Reports whether a name still refers to an open file.
fn is_at(descriptor: i32, name: &[u8; LONGEST]) -> bool {
    // SAFETY: `named` has room for the result; the name ends with a zero.
    let named = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let flags = libc::AT_SYMLINK_NOFOLLOW as usize;
        let to = &raw mut status as usize;
        let arguments = [CURRENT_DIRECTORY, name.as_ptr() as usize, to, flags, 0, 0];
        (call(libc::SYS_newfstatat, arguments) == 0).then_some(status)
    };
    match (named, status(descriptor)) {
        (Some(named), Some(open)) => (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino),
        _ => false,
    }
}

/// Renames a file unless the target exists. On file systems without support for this check,
/// replaces the target.
fn rename_to_nothing(from: &[u8; LONGEST], to: &[u8; LONGEST]) -> Result<(), i32> {
    let rename = |flags: u32| {
        let (from, to) = (from.as_ptr() as usize, to.as_ptr() as usize);
        // SAFETY: both paths end with zeros.
        let renamed = unsafe {
            call(
                libc::SYS_renameat2,
                [
                    CURRENT_DIRECTORY,
                    from,
                    CURRENT_DIRECTORY,
                    to,
                    flags as usize,
                    0,
                ],
            )
        };
        if renamed == 0 {
            Ok(())
        } else {
            Err(-renamed as i32)
        }
    };
    match rename(libc::RENAME_NOREPLACE) {
        Err(libc::EINVAL) => rename(0),
        done => done,
    }
}

/// Makes a system call that only succeeds or fails. The arguments must be valid for it.
fn result(number: c_long, [a, b, c, d]: [usize; 4]) -> Result<(), i32> {
    // SAFETY: all callers are in this file and pass valid arguments.
    let answer = unsafe { call(number, [a, b, c, d, 0, 0]) };
    if answer < 0 {
        Err(-answer as i32)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn expanded_path(path: &str, process: u32) -> Option<String> {
        let mut name = [0; LONGEST];
        let end = expand(path, process, &mut name)?;
        Some(String::from_utf8(name[..end].to_vec()).unwrap())
    }

    #[test]
    fn the_process_has_its_number_in_the_name() {
        for (path, process, expected) in [
            ("/a/b", 7, "/a/b"),
            ("/a/%p.post", 4_194_304, "/a/4194304.post"),
            ("%p%p", 10, "1010"),
            ("100%", 1, "100%"),
            ("%%p %q", 5, "%5 %q"),
            ("%p", 0, "0"),
        ] {
            assert_eq!(expanded_path(path, process).as_deref(), Some(expected));
            assert_eq!(expanded(path, process), expected);
        }
        let here = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
        for (path, expected) in [
            ("%n", here.to_string()),
            ("/a/%p-%n.x", format!("/a/7-{here}.x")),
        ] {
            assert_eq!(expanded_path(path, 7).as_deref(), Some(&*expected));
            assert_eq!(expanded(path, 7), expected);
        }
        assert_eq!(
            expanded_path(&"x".repeat(LONGEST - 17), 1).unwrap().len(),
            LONGEST - 17
        );
        assert_eq!(expanded_path(&"x".repeat(LONGEST - 16), 1), None);
        assert_eq!(expanded_path(&"%p".repeat(LONGEST / 4), 4_194_304), None);
    }
}
