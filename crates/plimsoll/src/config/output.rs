//! The directory of the setting `out`.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use crate::profile::{self, Format};
use crate::warning;
use crate::{internal_scope, overhead};
use plimsoll_sys::os::process_id;

/// Creates the directory, and warns if profiles cannot be written there.
pub(super) fn prepare(directory: &Path) {
    let _own = internal_scope::scope();
    if let Err(error) = create(directory).and_then(|()| try_to_write(directory)) {
        let directory = directory.display();
        warning::warn(format_args!(
            "cannot write profiles to {directory}: {error}; the program tries again when it ends"
        ));
    }
}

/// Writes all profiles to the directory; warns about those that it cannot write.
pub(super) fn write(directory: &Path) {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    // It may have been removed since the start. Without a directory, one warning is enough.
    if let Err(error) = create(directory) {
        let directory = directory.display();
        return warning::warn(format_args!(
            "cannot write profiles to {directory}: {error}"
        ));
    }
    for profile in profile::profiles() {
        let path = directory.join(format!("{}.pb.gz", profile.name()));
        if let Err(error) = profile.write_to_file(path, Format::Pprof) {
            warning::warn(error);
        }
    }
}

fn create(directory: &Path) -> io::Result<()> {
    // For a file of that name, the system says that it exists, which explains little.
    if fs::metadata(directory).is_ok_and(|found| !found.is_dir()) {
        return Err(io::Error::other("it is not a directory"));
    }
    fs::create_dir_all(directory)
}

/// Creates and removes a file. Permissions alone do not show a read-only or special file system.
fn try_to_write(directory: &Path) -> io::Result<()> {
    let path = directory.join(format!(".plimsoll-{}.part", process_id()));
    let created = OpenOptions::new().write(true).create_new(true).open(&path);
    match created {
        Ok(_) => fs::remove_file(&path),
        // An earlier process of the same number was killed here.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
