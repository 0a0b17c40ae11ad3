//! The preloaded library. The command contains it, and writes it to a file from which the loader can load it.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::Directory;
use plimsoll_command::failure::Failure;

/// The age at which unused files of other versions are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The name of the library's file. It distinguishes the library's frames from the program's.
pub const NAME: &str = "libplimsoll_preload.so";

/// A library that programs can be run with.
pub struct Library {
    /// The content of its file.
    pub content: &'static [u8],
    /// A hash of the content, in hexadecimal digits, which distinguishes its versions.
    pub hash: &'static str,
}

impl Library {
    /// Returns the path of the library, and writes the file unless it exists.
    ///
    /// The file stays, because children of the program may load it after this process has ended. It is
    /// therefore not a descriptor of this process, but a path that no other user can redirect.
    pub(super) fn path(&self) -> Result<PathBuf, Failure> {
        let mut tried: Vec<String> = Vec::new();
        for directory in directories() {
            match self.in_directory(&directory) {
                Ok(path) => return Ok(path),
                Err(error) => {
                    let failed = format!("{}: {error}", directory.display());
                    if !tried.contains(&failed) {
                        tried.push(failed);
                    }
                }
            }
        }
        // Another user may have taken all of these names.
        for base in directories_of_all() {
            match self.with_other_name(&base) {
                Ok(path) => return Ok(path),
                Err(error) => tried.push(format!("{}: {error}", base.display())),
            }
        }
        Err(Failure::new(
            "no safe directory for the preloaded library",
            format!(
                "{}; set XDG_CACHE_HOME to a directory of this user",
                tried.join("; ")
            ),
        ))
    }

    /// Places the library in a directory of `base` whose name no other user could foresee: the directory of an earlier
    /// run, or a new one.
    fn with_other_name(&self, base: &Path) -> io::Result<PathBuf> {
        let prefix = format!("{}-", shared_name());
        let base = Directory::open_trusted(&std::path::absolute(base)?)?;
        for entry in fs::read_dir(base.path())?.flatten() {
            let name = entry.file_name();
            let is_own = |found: fs::Metadata| found.uid() == rustix::process::geteuid().as_raw();
            if name.as_bytes().starts_with(prefix.as_bytes())
                && entry.metadata().is_ok_and(is_own)
                && let Ok(path) = self.in_directory(&entry.path())
            {
                return Ok(path);
            }
        }
        self.in_directory(&base.temporary(&prefix)?)
    }

    /// Places the library in `directory`, which only this user can write, in a subdirectory named by
    /// the library's hash.
    fn in_directory(&self, directory: &Path) -> io::Result<PathBuf> {
        let (Some(base), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(io::Error::other("it has no parent directory"));
        };
        let directory = Directory::open_trusted(base)?.private(name)?;
        let own = directory.private(self.hash)?;
        if base == Path::new(ALL_USERS) {
            for directory in [&directory, &own] {
                fs::set_permissions(directory.path(), Permissions::from_mode(0o755))?;
            }
        }
        let path = own.path().join(NAME);
        // The loader splits paths at spaces and colons.
        if (path.as_os_str().as_bytes().iter()).any(|byte| b" :\t\n".contains(byte)) {
            return Err(io::Error::other(
                "the loader does not support paths with a space or a colon",
            ));
        }
        if let Ok(file) = own.open_file(NAME)
            && self.is_in(&file)
        {
            let _ = file.set_modified(SystemTime::now());
            return Ok(path);
        }
        remove_what_is_old(directory.path());
        own.replace(NAME, |file| {
            file.write_all(self.content)?;
            file.set_permissions(Permissions::from_mode(0o755))?;
            // Otherwise the name could survive a failure of the system without the contents.
            file.sync_all()
        })?;
        Ok(path)
    }

    /// Returns whether the file has the library, by its size and its ends. It was complete before it had
    /// this name, and only this user can change it: comparing all of it would delay each program.
    fn is_in(&self, file: &File) -> bool {
        const END: usize = 4096;
        let is_there = |expected: &[u8], at: usize| {
            let mut there = [0; END];
            let there = &mut there[..expected.len()];
            file.read_exact_at(there, at as u64).is_ok() && there == expected
        };
        let end = self.content.len().saturating_sub(END);
        let size = file.metadata().map(|metadata| metadata.len());
        size.is_ok_and(|size| size == self.content.len() as u64)
            && is_there(&self.content[..END.min(self.content.len())], 0)
            && is_there(&self.content[end..], end)
    }
}

/// The number of names that are tried in a directory for temporary files, where another user may
/// have taken some.
const MAX_NAMES: u32 = 4;

/// Root's directory for the library: programs that root starts may execute others as another user, who
/// cannot enter root's home directory.
const ALL_USERS: &str = "/var/cache";

/// Returns the candidate directories in the order in which they are tried.
fn directories() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let is_root = rustix::process::geteuid().is_root();
    let caches = [
        variable("XDG_CACHE_HOME"),
        is_root.then(|| ALL_USERS.into()),
        variable("HOME").map(|home| home.join(".cache")),
    ];
    let own = caches.into_iter().flatten();
    let own = own.map(|cache| cache.join("plimsoll"));
    let name = shared_name();
    let shared = directories_of_all().into_iter().flat_map(move |base| {
        let name = name.clone();
        (0..MAX_NAMES).map(move |number| match number {
            0 => base.join(&name),
            _ => base.join(format!("{name}-{number}")),
        })
    });
    own.chain(shared)
        .filter(|directory| directory.is_absolute())
}

/// Returns the directories for temporary files, in which all users create files.
fn directories_of_all() -> [PathBuf; 2] {
    [std::env::temp_dir(), "/tmp".into()]
}

/// Returns the name of this user's directory there.
fn shared_name() -> String {
    format!("plimsoll-{}", rustix::process::geteuid().as_raw())
}

/// Removes old versions of the library. Failures are ignored.
fn remove_what_is_old(directory: &Path) {
    let Ok(versions) = fs::read_dir(directory) else {
        return;
    };
    for version in versions.flatten().map(|version| version.path()) {
        let library = version.join(NAME);
        let used = fs::symlink_metadata(&library).and_then(|library| library.modified());
        let age = used.map(|used| used.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > KEPT) {
            let _ = fs::remove_file(library).and_then(|()| fs::remove_dir(version));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    /// Its ends do not overlap.
    const LIBRARY: Library = Library {
        content: &[b'l'; 3 * 4096],
        hash: "0123456789abcdef",
    };

    #[test]
    fn a_new_version_replaces_old_ones() {
        let directory = std::env::temp_dir().join(format!("plimsoll-old-{}", std::process::id()));
        let put = |version: &str, age: Duration| {
            let version = directory.join(version);
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&version)
                .unwrap();
            let library = File::create(version.join(NAME)).unwrap();
            library.set_modified(SystemTime::now() - age).unwrap();
            version
        };
        let (old, young) = (put("old", 2 * KEPT), put("young", KEPT / 2));
        let other = directory.join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        let library = LIBRARY.in_directory(&directory).unwrap();
        assert_eq!(fs::read(&library).unwrap(), LIBRARY.content);
        assert!(!old.exists() && young.exists() && other.exists());
        // An existing file is used without being rewritten; only its time changes.
        File::open(&library)
            .unwrap()
            .set_modified(SystemTime::now() - 2 * KEPT)
            .unwrap();
        assert_eq!(LIBRARY.in_directory(&directory).unwrap(), library);
        let used = fs::metadata(&library).unwrap().modified().unwrap();
        assert!(used.elapsed().unwrap_or_default() < KEPT);
        // A file that is cut or has other contents is replaced.
        for (size, byte) in [
            (LIBRARY.content.len() as u64 - 1, 0),
            (0, 0),
            (LIBRARY.content.len() as u64, 1),
        ] {
            let file = File::options().write(true).open(&library).unwrap();
            file.set_len(size).unwrap();
            file.write_all_at(
                &[LIBRARY.content[LIBRARY.content.len() - 9] ^ byte],
                LIBRARY.content.len() as u64 - 9,
            )
            .unwrap();
            assert_eq!(LIBRARY.in_directory(&directory).unwrap(), library);
            assert_eq!(fs::read(&library).unwrap(), LIBRARY.content);
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn other_users_cannot_take_all_names() {
        let base = std::env::temp_dir().join(format!("plimsoll-taken-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, Permissions::from_mode(0o1777)).unwrap();
        let taken = base.join(format!("{}-taken", shared_name()));
        fs::create_dir(&taken).unwrap();
        fs::set_permissions(&taken, Permissions::from_mode(0o777)).unwrap();
        let library = LIBRARY.with_other_name(&base).unwrap();
        assert_eq!(fs::read(&library).unwrap(), LIBRARY.content);
        assert!(library.starts_with(&base) && !library.starts_with(&taken));
        assert_eq!(
            LIBRARY.with_other_name(&base).unwrap(),
            library,
            "it is found again"
        );
        fs::remove_dir_all(base).unwrap();
    }
}
