//! The directory in which the processes of a run leave their reports.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::directory::Directory;
use super::roll;
use plimsoll_command::failure::Failure;
use plimsoll_command::files::random_name;

/// The beginning of the names of these directories.
const PREFIX: &str = "plimsoll-run-";

/// A directory for the reports of processes, which is removed on drop.
pub(super) struct Reports {
    pub(super) directory: PathBuf,
    /// The directory that contains it, or the same.
    removed: PathBuf,
    /// Keeps the directory from [`remove_abandoned`] while this process lives.
    _lock: Option<OwnedFd>,
}

impl Reports {
    /// Creates a directory for the reports: in memory if `in_memory`, in the directory for temporary files,
    /// or in `/tmp` if other users can redirect the path of the former.
    /// With `children`, many processes report.
    pub(super) fn new(in_memory: bool, children: bool) -> Result<Self, Failure> {
        let mut tried = Vec::new();
        let memory = in_memory.then(directory_in_memory).flatten();
        if let Some(memory) = &memory {
            remove_abandoned(memory);
        }
        let directories = [std::env::temp_dir(), "/tmp".into()];
        for directory in memory.into_iter().chain(directories) {
            match Self::in_directory(&directory) {
                Ok(reports) => {
                    // A file system without the call has no roll.
                    let _ = roll::create(&reports.directory, children);
                    return Ok(reports);
                }
                Err(error) => tried.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(Failure::new(
            "no safe directory for reports",
            tried.join("; "),
        ))
    }

    fn in_directory(directory: &Path) -> io::Result<Self> {
        // The path must be absolute, because the program may change its working directory.
        let directory = Directory::open_trusted(&std::path::absolute(directory)?)?;
        let (name, lock) = locked(|| directory.temporary(PREFIX))?;
        let mut reports = Self {
            directory: name.clone(),
            removed: name,
            _lock: lock,
        };
        if rustix::process::geteuid().is_root() {
            reports.admit_other_users()?;
        }
        Ok(reports)
    }

    /// Moves the reports to a directory that processes of other users can write to, as workers of a
    /// server do that was started by root. Only processes of this run know its name: others
    /// cannot list the directory around it. The sticky bit keeps each user's files.
    fn admit_other_users(&mut self) -> io::Result<()> {
        let directory = self.removed.join(random_name()?);
        fs::create_dir(&directory)?;
        fs::set_permissions(&directory, Permissions::from_mode(0o1733))?;
        fs::set_permissions(&self.removed, Permissions::from_mode(0o711))?;
        self.directory = directory;
        Ok(())
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.removed);
    }
}

/// Creates a directory by `create`, and locks it. Another run may remove it before it is locked: then a
/// second one is created. Returns no lock where the file system has none.
fn locked(create: impl Fn() -> io::Result<PathBuf>) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    loop {
        let name = create()?;
        let lock = match open_directory(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            lock => lock.ok(),
        };
        let lock = lock.filter(|lock| flock(lock, FlockOperation::LockExclusive).is_ok());
        if lock.is_none() || name.exists() {
            return Ok((name, lock.map(OwnedFd::from)));
        }
    }
}

fn open_directory(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(path)
}

/// Removes directories of runs of this user that were killed: they would occupy memory for ever. Each
/// living run holds the lock of its directory.
fn remove_abandoned(memory: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(memory).into_iter().flatten().flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            continue;
        }
        let path = entry.path();
        let Ok(directory) = open_directory(&path) else {
            continue;
        };
        let is_own = directory.metadata().is_ok_and(|found| found.uid() == user);
        if is_own && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // If it cannot be removed, it remains as it was.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Returns the directory for shared memory, if it has room. To create and remove a file on a disk takes
/// longer than all else at the end of a short program. A directory that the user chose comes first.
fn directory_in_memory() -> Option<PathBuf> {
    const SHARED_MEMORY: &str = "/dev/shm";
    const TMPFS: u64 = 0x0102_1994;
    const ROOM: u64 = 256 << 20;
    if std::env::var_os("TMPDIR").is_some() {
        return None;
    }
    let found = rustix::fs::statfs(SHARED_MEMORY).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_bsize as u64);
    (found.f_type as u64 == TMPFS && free >= ROOM).then(|| SHARED_MEMORY.into())
}
