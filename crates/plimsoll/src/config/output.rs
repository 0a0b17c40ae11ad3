//! The directory of the setting `out`. Profiles are written when the `Plimsoll` is dropped. A program that ends before, by
//! `exit` or a return from the `main` of C, drops nothing: a handler of `exit` writes them then. On request, `SIGTERM` and
//! `SIGINT` write them before they end the process.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::signal_request::{self, Signal};
use plimsoll_core::fork::Order;
use plimsoll_core::warning;
use plimsoll_core::{internal_scope, overhead};
use plimsoll_profiles::profile::{self, Format};
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::{filter, process_id};

/// The directories to which no profiles were written yet, with the processes that requested it. A child of a fork does not
/// overwrite the files of its parent when it exits.
static DUE: ForkLock<Vec<(PathBuf, u32)>> = ForkLock::new(Order::Outputs.rank(), Vec::new());

/// Notes that profiles are to be written to a directory, at the exit of this process at the latest.
pub(super) fn begin(directory: &Path) {
    static REGISTERED: Once = Once::new();
    prepare(directory);
    let _own = internal_scope::scope();
    DUE.lock().push((directory.to_owned(), process_id()));
    #[cfg(any(unix, windows))]
    REGISTERED.call_once(|| {
        // SAFETY: the function takes no arguments. Without memory for it, only a drop writes.
        unsafe { libc::atexit(at_exit) };
    });
}

/// Writes all profiles to the directory, unless the exit of the process has.
pub(super) fn end(directory: &Path) {
    let is_due = {
        let _own = internal_scope::scope();
        let mut due = DUE.lock();
        let process = process_id();
        let at = (due.iter()).position(|(path, of)| path == directory && *of == process);
        at.map(|at| due.swap_remove(at)).is_some()
    };
    if is_due {
        write(directory);
    }
}

/// Makes the signal write the profiles that are due before it ends the process.
pub(super) fn at_signal(signal: Signal) {
    if let Err(error) = signal_request::on(signal, write_due) {
        warning::warn(format_args!("cannot write profiles at {signal}: {error}"));
    }
}

extern "C" fn at_exit() {
    write_due();
}

/// Writes all profiles to each directory to which this process has not written them.
fn write_due() {
    let _own = internal_scope::scope();
    let due = std::mem::take(&mut *DUE.lock());
    for (directory, process) in due {
        if process == process_id() {
            write(&directory);
        }
    }
}

/// Creates the directory, and warns if profiles cannot be written there.
fn prepare(directory: &Path) {
    let _own = internal_scope::scope();
    if let Err(error) = create(directory).and_then(|()| try_to_write(directory)) {
        let directory = directory.display();
        warning::warn(format_args!(
            "cannot write profiles to {directory}: {error}; the program tries again when it ends"
        ));
    }
}

/// Writes all profiles to the directory; warns about those that it cannot write.
fn write(directory: &Path) {
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
    filter::check_writing()?;
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
