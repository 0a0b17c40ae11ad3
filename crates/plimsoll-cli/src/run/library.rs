//! The library that is preloaded. It is in this program, and put into a file where the loader finds
//! it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::Failure;

static LIBRARY: &[u8] = include_bytes!(env!("PLIMSOLL_PRELOAD"));

/// Tells one version of it from another.
const HASH: &str = env!("PLIMSOLL_PRELOAD_HASH");

/// Other versions that nobody has used for so long are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The name of its file, which tells its frames from the program's.
pub const NAME: &str = "libplimsoll_preload.so";

/// Where the library is, after it was put there unless it was there already.
///
/// It stays: children of the program may want it when this program has ended.
pub fn path() -> Result<PathBuf, Failure> {
    let mut tried = Vec::new();
    for directory in directories() {
        match in_directory(&directory) {
            Ok(path) => return Ok(path),
            Err(error) => tried.push(format!("{}: {error}", directory.display())),
        }
    }
    Err(Failure::new(
        "no place for the library that is preloaded",
        tried.join("; "),
    ))
}

/// Where it may be, in the order in which they are tried. The loader takes spaces and colons for
/// ends of a path.
fn directories() -> impl Iterator<Item = PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME");
    let home = variable("HOME").map(|home| home.join(".cache"));
    let all = [cache, home, Some(std::env::temp_dir()), Some("/tmp".into())];
    // SAFETY: no arguments.
    let user = unsafe { libc::geteuid() };
    let each = all.into_iter().flatten().enumerate();
    each.map(move |(at, base)| {
        if at < 2 {
            base.join("plimsoll")
        } else {
            base.join(format!("plimsoll-{user}"))
        }
    })
    .filter(|directory| {
        let bytes = directory.as_os_str().as_bytes();
        directory.is_absolute() && !bytes.iter().any(|byte| b" :\t\n".contains(byte))
    })
}

/// In a directory that is nobody else's to write to: by the name of what is in it, so that several
/// versions do not get in each other's way.
fn in_directory(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    // SAFETY: no arguments.
    if !found.is_dir() || found.uid() != unsafe { libc::geteuid() } || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write to it"));
    }
    let own = directory.join(HASH);
    DirBuilder::new().recursive(true).mode(0o700).create(&own)?;
    let path = own.join(NAME);
    if fs::read(&path).is_ok_and(|there| there == LIBRARY) {
        let _ = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(path);
    }
    remove_what_is_old(directory);
    let beside = own.join(format!("{NAME}.{}", std::process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(LIBRARY)?;
        file.set_permissions(Permissions::from_mode(0o755))?;
        fs::rename(&beside, &path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map(|()| path)
}

/// What cannot be removed stays.
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
    use super::*;

    #[test]
    fn old_versions_are_removed_when_there_is_a_new_one() {
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
        let library = in_directory(&directory).unwrap();
        assert_eq!(fs::read(&library).unwrap(), LIBRARY);
        assert!(!old.exists() && young.exists() && other.exists());
        // It is used, and stays as it is.
        File::open(&library)
            .unwrap()
            .set_modified(SystemTime::now() - 2 * KEPT)
            .unwrap();
        assert_eq!(in_directory(&directory).unwrap(), library);
        let used = fs::metadata(&library).unwrap().modified().unwrap();
        assert!(used.elapsed().unwrap_or_default() < KEPT);
        fs::remove_dir_all(directory).unwrap();
    }
}
