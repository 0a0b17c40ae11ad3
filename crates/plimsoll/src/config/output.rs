//! The directory of the setting `out`. Profiles are written when the `Plimsoll` is dropped. A program that ends before, by
//! `exit` or a return from the `main` of C, drops nothing: a handler of `exit` writes them then. On request, `SIGTERM` and
//! `SIGINT` write them before they end the process. Each of these ends waits for another that writes.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::signal_request::{self, Signal};
use plimsoll_core::fork::Order;
use plimsoll_core::warning;
use plimsoll_core::{internal_scope, overhead};
use plimsoll_profiles::profile::{self, Format};
use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::{filter, process_id};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

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
    let writing = Writing::begin();
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
    writing.end();
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
    let writing = Writing::begin();
    let due = std::mem::take(&mut *DUE.lock());
    for (directory, process) in due {
        if process == process_id() {
            write(&directory);
        }
    }
    writing.end();
}

/// A thread that may write profiles, from before it takes what is due.
struct Writing;

/// The process of these threads in the upper half, and their number: the child of a fork has none.
static WRITERS: AtomicU64 = AtomicU64::new(0);

/// The maximum time for which an end waits for another one.
const MAX_WAIT: Duration = Duration::from_secs(60);

thread_local! {
    /// How many of these the calling thread is: two if a signal handler of the program calls `exit` while it writes.
    static HERE: Cell<u32> = const { Cell::new(0) };
}

impl Writing {
    fn begin() -> Self {
        Self::update(|number| number + 1);
        HERE.with(|here| here.set(here.get() + 1));
        Self
    }

    /// Waits until no other thread writes.
    fn end(self) {
        const PAUSE: Duration = Duration::from_millis(1);
        drop(self);
        // What this thread writes itself does not go on meanwhile.
        if HERE.with(Cell::get) != 0 {
            return;
        }
        let is_writing = || Self::number(WRITERS.load(Ordering::SeqCst)) != 0;
        let until = Instant::now() + MAX_WAIT;
        // Without it, a system call filter forbids to wait.
        let Ok(pauses) = Bell::new() else { return };
        while is_writing() && Instant::now() < until {
            pauses.wait_at_most(PAUSE);
        }
    }

    /// Returns the number of writing threads of this process.
    fn number(writers: u64) -> u64 {
        match writers >> 32 == u64::from(process_id()) {
            true => writers & u64::from(u32::MAX),
            false => 0,
        }
    }

    fn update(change: impl Fn(u64) -> u64) {
        let process = u64::from(process_id()) << 32;
        let _ = WRITERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |writers| {
            Some(process | change(Self::number(writers)))
        });
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        Self::update(|number| number.saturating_sub(1));
        HERE.with(|here| here.set(here.get().saturating_sub(1)));
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
