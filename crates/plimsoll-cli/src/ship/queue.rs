//! A directory whose finished files are shipped.
//!
//! A finished file is claimed first: renamed to a name that is unique in time, in the directory
//! [`CLAIMED`] inside. From then on, no process replaces it, and a start after a crash finds it. Only one
//! command at a time works on a directory: it holds a lock, which the system releases at its end.
//!
//! A process that starts meanwhile may give the name of a file that is about to be claimed to its new
//! post-mortem file, which is then claimed instead. Such a file is renamed back; if that fails, it waits
//! until its process has ended.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{
    self, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, flock, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::name::{self, POST_MORTEM, PROFILE};
use plimsoll_command::failure::Failure;
use plimsoll_command::profile::{Limits, Profile, parse};
use plimsoll_launch::run::name_of;

/// The directory of claimed files.
pub(super) const CLAIMED: &str = ".plimsoll-ship";

const LOCK: &str = "lock";

/// The maximum length of a file in bytes, with its holes.
const MAX_LENGTH: u64 = 1 << 30;

/// The maximum number of files that are claimed at a time, so that the claim of many takes turns with
/// shipping.
const MAX_CLAIMED_AT_ONCE: usize = 1000;

/// The number of names that are tried for files of the same identity.
const NAMES: u32 = 100;

/// A directory with finished files.
pub(super) struct Queue {
    /// The name, as the user gave it.
    pub(super) name: String,
    directory: OwnedFd,
    claimed: OwnedFd,
    /// Keeps the lock while this command works on the directory.
    lock: File,
    host: String,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    PostMortem,
    Profile,
}

impl Queue {
    /// Opens a directory, and creates the directory of claimed files in it.
    ///
    /// # Errors
    /// It is not a directory that this user can change.
    pub(super) fn open(name: &str, host: &str) -> Result<Self, Failure> {
        let open = || -> io::Result<Self> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = fs::open(Path::new(name), flags, Mode::empty())?;
            match fs::mkdirat(&directory, CLAIMED, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = flags | OFlags::NOFOLLOW;
            let claimed = openat(&directory, CLAIMED, flags, Mode::empty())?;
            let owner = fs::fstat(&claimed)?;
            if owner.st_uid != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other(format!(
                    "{CLAIMED} in it belongs to another user"
                )));
            }
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let lock = openat(&claimed, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
            Ok(Self {
                name: name.to_owned(),
                directory,
                claimed,
                lock: lock.into(),
                host: host.to_owned(),
            })
        };
        open().map_err(|error| Failure::new(name, error))
    }

    /// Takes the lock of the directory. Returns false if another command holds it.
    pub(super) fn lock(&self) -> bool {
        // Where files cannot be locked, the user must start one command only.
        !matches!(
            flock(&self.lock, FlockOperation::NonBlockingLockExclusive),
            Err(Errno::WOULDBLOCK)
        )
    }

    /// Returns whether this is the directory at `path`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let (Ok(there), Ok(own)) = (path.metadata(), fs::fstat(&self.directory)) else {
            return false;
        };
        (there.dev(), there.ino()) == (own.st_dev, own.st_ino)
    }

    /// Claims the finished files. Skips other files, and those that cannot be read.
    ///
    /// # Errors
    /// The directory cannot be read, or files cannot be renamed in it.
    pub(super) fn claim(&self) -> io::Result<()> {
        let mut claimed = 0;
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let may_be_one = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
            // Files under construction have the extension `part`.
            if may_be_one && !name.ends_with(".part") && self.claim_one(name)? {
                claimed += 1;
            }
            if claimed == MAX_CLAIMED_AT_ONCE {
                break;
            }
        }
        Ok(())
    }

    fn claim_one(&self, name: &str) -> io::Result<bool> {
        let Some((file, kind)) = open_file(&self.directory, name) else {
            return Ok(false);
        };
        let Some((stem, extension)) = self.identity(name, &file, kind) else {
            return Ok(false);
        };
        let Some(new) = self.rename(name, &stem, extension)? else {
            return Ok(false);
        };
        let own = file.metadata()?;
        match statat(&self.claimed, &new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) == (own.dev(), own.ino()) => Ok(true),
            _ => {
                let back = RenameFlags::NOREPLACE;
                let _ = renameat_with(&self.claimed, &new, &self.directory, name, back);
                Ok(false)
            }
        }
    }

    /// Renames a file to the first free name in the directory of claimed files. Returns that name;
    /// `None` if the file has disappeared.
    fn rename(&self, name: &str, stem: &str, extension: &str) -> io::Result<Option<String>> {
        for number in 0..NAMES {
            let new = match number {
                0 => format!("{stem}{extension}"),
                number => format!("{stem}.{number}{extension}"),
            };
            let free = RenameFlags::NOREPLACE;
            match renameat_with(&self.directory, name, &self.claimed, &new, free) {
                Ok(()) => return Ok(Some(new)),
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns the name without its extension, and the extension, of a finished file. `None` if the file
    /// is not finished.
    fn identity(&self, name: &str, file: &File, kind: Kind) -> Option<(String, &'static str)> {
        let modified = file.metadata().and_then(|metadata| metadata.modified());
        let modified = name::moment(name::since_1970(modified.unwrap_or(SystemTime::UNIX_EPOCH)));
        let host = &self.host;
        match kind {
            Kind::PostMortem if plimsoll_postmortem::is_in_use(file) => None,
            Kind::PostMortem => Some((
                match plimsoll_postmortem::read(file) {
                    Ok(read) => name::joined(&[
                        host,
                        name_of(&read.program),
                        &read.process.to_string(),
                        &name::moment(read.began_ns),
                    ]),
                    // Another version wrote it, or it is damaged.
                    Err(_) => name::joined(&[host, name, &modified]),
                },
                POST_MORTEM,
            )),
            Kind::Profile => {
                let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
                file.read_exact_at(&mut bytes, 0).ok()?;
                // A file that is not complete yet is invalid.
                let profile = parse(&bytes, Limits::default()).ok()?;
                let name = name.strip_suffix(PROFILE).unwrap_or(name);
                let program = program_of(&profile);
                Some((name::joined(&[host, &program, &modified, name]), PROFILE))
            }
        }
    }

    /// Returns the names of claimed files, the oldest first.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn waiting(&self) -> io::Result<Vec<String>> {
        let mut files = Vec::new();
        for entry in Dir::read_from(&self.claimed)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str()
                && name != LOCK
                && let Ok(found) = statat(&self.claimed, name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(found.st_mode).is_file()
            {
                files.push((found.st_mtime, found.st_mtime_nsec, name.to_owned()));
            }
        }
        files.sort();
        Ok(files.into_iter().map(|(.., name)| name).collect())
    }

    /// Opens a claimed file. Returns `None` if its process still runs, or if it is not a file to ship.
    pub(super) fn open_claimed(&self, name: &str) -> Option<(File, Kind)> {
        let (file, kind) = open_file(&self.claimed, name)?;
        let is_finished = kind == Kind::Profile || !plimsoll_postmortem::is_in_use(&file);
        is_finished.then_some((file, kind))
    }

    /// Deletes a claimed file.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn delete(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.claimed, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens a file that may be shipped: a post-mortem file, or a profile with the extension [`PROFILE`].
/// Returns `None` for others, for links, and for files with several names: another user may have linked
/// them here.
fn open_file(directory: &OwnedFd, name: &str) -> Option<(File, Kind)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: File = openat(directory, name, flags, Mode::empty()).ok()?.into();
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.len() > MAX_LENGTH {
        return None;
    }
    let mut beginning = [0; 8];
    let read = file.read_at(&mut beginning, 0).ok()?;
    if plimsoll_postmortem::is_post_mortem(&beginning[..read]) {
        return Some((file, Kind::PostMortem));
    }
    let is_profile = name.ends_with(PROFILE) && beginning.starts_with(&[0x1f, 0x8b]);
    is_profile.then_some((file, Kind::Profile))
}

/// Returns the name of the program of a profile: of its first mapping.
pub(super) fn program_of(profile: &Profile) -> String {
    let first = profile.mappings().first();
    let file = first.map_or("", |mapping| profile.string(mapping.file));
    name_of(file).to_owned()
}
