//! Directories that are read and written through descriptors, so that a path that another user
//! redirects meanwhile does not lead elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens the directory at `path`. Other users may control its path.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            descriptor: fs::open(path, OPEN, Mode::empty())?,
        })
    }

    /// Opens the directory at `path` after checking that no other user can redirect its path.
    ///
    /// After links are resolved, every directory on the path must belong to root or to the
    /// effective user. Other users must not be able to write to it, unless the sticky bit protects
    /// its entries. In a user namespace without root, `/` and `/tmp` may belong to an unmapped
    /// user. Missing directories are created with permissions for the effective user only.
    ///
    /// # Errors
    /// A system error, or the name of the directory that fails the check.
    pub fn open_trusted(path: &Path) -> io::Result<Self> {
        let (existing, missing) = resolved(path)?;
        let mut directory = Self::open(Path::new("/"))?;
        directory.check_trusted()?;
        for part in existing.components() {
            if let Component::Normal(name) = part {
                directory = directory.enter(name)?;
                directory.check_trusted()?;
            }
        }
        for name in missing {
            directory = directory.private(&name)?;
        }
        Ok(directory)
    }

    /// Opens the directory `name` in this one, and creates it if it is missing. Fails if any other
    /// user can write to it.
    pub fn private(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = name.as_ref();
        match fs::mkdirat(&self.descriptor, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let directory = self.enter(name)?;
        let found = fs::fstat(&directory.descriptor)?;
        if is_own(&found) {
            return Ok(directory);
        }
        Err(directory.refused(&found))
    }

    /// Creates a directory of an unused name in this one, which only the effective user can read.
    pub fn temporary(&self, prefix: &str) -> io::Result<PathBuf> {
        let template = self.path.join(format!("{prefix}XXXXXX"));
        let mut bytes = template.into_os_string().into_vec();
        bytes.push(0);
        // SAFETY: `bytes` is a null-terminated string that `mkdtemp` modifies in place.
        if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        bytes.pop();
        Ok(OsString::from_vec(bytes).into())
    }

    /// Returns the path; free of links if `open_trusted` opened the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the regular file `name`. Fails if it belongs to another user, or if other users can
    /// write to it.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.descriptor, name, flags, Mode::empty())?;
        let found = fs::fstat(&file)?;
        let is_regular = fs::FileType::from_raw_mode(found.st_mode).is_file();
        if is_regular && is_own(&found) {
            return Ok(file.into());
        }
        Err(io::Error::other("the file does not belong to this user"))
    }

    /// Replaces the file `name` atomically by a new file that only the effective user can read. A
    /// link of that name is replaced, not followed.
    pub fn replace(
        &self,
        name: &str,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (beside, mut file) = self.create_beside(name)?;
        let written = write(&mut file).and_then(|()| {
            Ok(fs::renameat(
                &self.descriptor,
                &beside,
                &self.descriptor,
                name,
            )?)
        });
        if written.is_err() {
            let _ = fs::unlinkat(&self.descriptor, &beside, AtFlags::empty());
        }
        written
    }

    /// Creates a file under an unused name.
    fn create_beside(&self, name: &str) -> io::Result<(String, File)> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut number = 0_u64;
        loop {
            let beside = format!("{name}.{}.{number}.part", std::process::id());
            match fs::openat(&self.descriptor, &beside, flags, mode) {
                Err(Errno::EXIST) => number += 1,
                opened => return Ok((beside, opened?.into())),
            }
        }
    }

    /// Opens the directory `name` in this one. Fails if `name` is a link.
    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let path = self.path.join(name);
        let flags = OPEN | OFlags::NOFOLLOW;
        match fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(descriptor) => Ok(Self { path, descriptor }),
            Err(error) => Err(named(&path, error)),
        }
    }

    fn check_trusted(&self) -> io::Result<()> {
        let found = fs::fstat(&self.descriptor)?;
        let is_trusted = found.st_uid == 0
            || found.st_uid == geteuid().as_raw()
            || OF_ROOT.iter().any(|path| self.path == Path::new(path)) && is_unmapped(found.st_uid);
        let is_closed = found.st_mode & WRITABLE_BY_OTHERS == 0 || found.st_mode & STICKY != 0;
        if is_trusted && is_closed {
            return Ok(());
        }
        Err(self.refused(&found))
    }

    /// Returns the error that other users could redirect a path through this directory.
    fn refused(&self, found: &Stat) -> io::Error {
        let path = self.path.display();
        let (owner, mode) = (found.st_uid, found.st_mode & 0o7777);
        io::Error::other(format!(
            "other users can change {path} (owner {owner}, mode {mode:o})"
        ))
    }
}

/// Directories that belong to root on every system.
const OF_ROOT: [&str; 2] = ["/", "/tmp"];

/// Returns whether `user` is the id that stands for all users without a mapping in this user
/// namespace. Root is unmapped in a namespace that an unprivileged user created.
fn is_unmapped(user: u32) -> bool {
    const ALL: u64 = u32::MAX as u64;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let overflow = read("/proc/sys/kernel/overflowuid").trim().parse();
    let mapped = read("/proc/self/uid_map")
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok())
        .fold(0, u64::saturating_add);
    overflow == Ok(user) && mapped != 0 && mapped < ALL
}

fn is_own(found: &Stat) -> bool {
    found.st_uid == geteuid().as_raw() && found.st_mode & WRITABLE_BY_OTHERS == 0
}

/// Returns the existing part of the path without links, and the names of the missing rest.
fn resolved(path: &Path) -> io::Result<(PathBuf, Vec<std::ffi::OsString>)> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match existing.canonicalize() {
            Ok(resolved) => {
                missing.reverse();
                return Ok((resolved, missing));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(error) => match (existing.file_name(), existing.parent()) {
                (Some(name), Some(parent)) => {
                    missing.push(name.to_owned());
                    existing = parent;
                }
                _ => return Err(error),
            },
        }
    }
}

fn named(path: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::*;

    /// A temporary directory that is removed on drop.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("plimsoll-directory-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
            Self(path)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_path_that_others_can_redirect_is_refused() {
        let scene = Scene::new("refused");
        let open = scene.0.join("open");
        fs::create_dir_all(open.join("inner")).unwrap();
        let trusted = |path: &Path| Directory::open_trusted(path).map(drop);
        trusted(&open.join("inner")).unwrap();
        fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        let error = trusted(&open.join("inner")).unwrap_err().to_string();
        assert!(error.contains("other users can change"), "{error}");
        assert!(error.contains("open (owner"), "{error}");
        assert!(trusted(&open.join("missing")).is_err());
        assert!(!open.join("missing").exists());
        // A link into that directory is as unsafe.
        symlink(open.join("inner"), scene.0.join("link")).unwrap();
        assert!(trusted(&scene.0.join("link")).is_err());
        // The sticky bit protects entries.
        fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).unwrap();
        trusted(&scene.0.join("link")).unwrap();
        trusted(&open.join("missing/far")).unwrap();
        let made = fs::metadata(open.join("missing/far")).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o700);
        if geteuid().is_root() {
            chown(open.join("missing"), Some(65534), None).unwrap();
            let error = trusted(&open.join("missing/far")).unwrap_err().to_string();
            assert!(error.contains("missing (owner 65534"), "{error}");
        }
    }

    #[test]
    fn only_directories_of_this_user_are_private() {
        let scene = Scene::new("private");
        let directory = Directory::open_trusted(&scene.0).unwrap();
        let private = directory.private("new").unwrap();
        assert_eq!(private.path().file_name().unwrap(), "new");
        fs::set_permissions(scene.0.join("new"), PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(directory.private("new").is_err());
        symlink("new", scene.0.join("link")).unwrap();
        assert!(directory.private("link").is_err());
    }

    #[test]
    fn a_planted_link_is_replaced_and_not_followed() {
        let scene = Scene::new("links");
        let victim = scene.0.join("victim");
        fs::write(&victim, "precious").unwrap();
        let own = std::process::id();
        for name in ["file", "file.part", &format!("file.{own}.0.part")] {
            symlink(&victim, scene.0.join(name)).unwrap();
        }
        let directory = Directory::open(&scene.0).unwrap();
        let write = |file: &mut File| file.write_all(b"new");
        directory.replace("file", write).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read(scene.0.join("file")).unwrap(), b"new");
        let written = fs::symlink_metadata(scene.0.join("file")).unwrap();
        assert!(written.is_file());
        assert_eq!(written.mode() & 0o777, 0o600);
        // A failed write leaves no file behind.
        let before = fs::read_dir(&scene.0).unwrap().count();
        let fails = |_: &mut File| Err(io::Error::other("full"));
        assert!(directory.replace("other", fails).is_err());
        assert_eq!(fs::read_dir(&scene.0).unwrap().count(), before);
    }

    #[test]
    fn a_file_that_others_can_change_is_not_opened() {
        let scene = Scene::new("files");
        let directory = Directory::open_trusted(&scene.0).unwrap();
        let path = scene.0.join("file");
        fs::write(&path, "text").unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(directory.open_file("file").is_ok());
        fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
        assert!(directory.open_file("file").is_err());
        symlink("file", scene.0.join("link")).unwrap();
        assert!(directory.open_file("link").is_err());
        rustix::fs::mknodat(
            &directory.descriptor,
            "pipe",
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(directory.open_file("pipe").is_err());
    }
}
