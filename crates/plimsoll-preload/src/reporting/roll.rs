//! The roll of a run: a file that its processes map, in which each states the progress of its report.
//!
//! A process that is killed, or that cannot reach the directory for reports, leaves no report. The command names it by its
//! entry. An entry takes stores to mapped memory and no allocation, so it can be made in the child of a `vfork`, under a filter, in
//! another root directory and without a free descriptor. Children of forks inherit the mapping.
//!
//! The command creates the file `roll` with all of its memory, since a store to a hole of a full file system would raise
//! SIGBUS. The first entry's place has the number of entries that were taken, which may exceed the capacity.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use plimsoll_sys::os::region;
use plimsoll_sys::os::syscall::call;
use plimsoll_sys::os::{files, filter, pid_namespace, process_id};
use plimsoll_sys::primitives::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The name of the file in the directory for reports.
const NAME: &str = "roll";

/// The bytes of a name that an entry keeps: its end, if it is longer.
const NAME_BYTES: usize = 112;

/// An entry. Its fields are valid once its state is not 0.
#[repr(C)]
struct Entry {
    /// The process in its own namespace; 0 if it could not ask for its number.
    process: AtomicU32,
    /// A [`State`], and a number of an error above the lowest byte.
    state: AtomicU32,
    /// The number of the namespace; 0 if it is unknown.
    namespace: AtomicU64,
    /// The path of the program, filled up with zeros.
    name: [AtomicU64; NAME_BYTES / 8],
}

/// The progress of a process's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    /// No process uses the entry.
    Void = 0,
    /// The process has begun.
    Begun = 1,
    /// It has written a report.
    Reported = 2,
    /// It could not write its report, for an error of the system.
    Failed = 3,
    /// It is about to execute the program of that name. An error concerns the directory for reports.
    Executes = 4,
    /// It inherits a system call filter and does not report.
    Filtered = 5,
    /// A system call made it, not the C library's `fork`.
    Copied = 6,
    /// Another process has started it with the program of that name.
    Spawned = 7,
}

/// The address of the mapped file; 0 without one.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// The number of places for entries, with the first.
static PLACES: AtomicUsize = AtomicUsize::new(0);

/// The place of this process; 0 for none.
static OWN: AtomicUsize = AtomicUsize::new(0);

/// The place for the programs that this process executes; 0 for none.
static EXECUTED: AtomicUsize = AtomicUsize::new(0);

/// The number of the namespace of processes, and whether a child may be in another one.
static NAMESPACE: AtomicU64 = AtomicU64::new(0);
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// Maps the roll in the directory for reports, and enters this process. Without the file, nothing is entered.
pub(super) fn open(directory: &Path) {
    NAMESPACE.store(pid_namespace(), Ordering::Relaxed);
    if map(&directory.join(NAME)).is_ok() {
        let path = files::executed_path().map_or(&[][..], |path| path.as_os_str().as_bytes());
        let at = enter(process_id(), namespace(), path, State::Begun, 0);
        OWN.store(at, Ordering::Relaxed);
    }
}

/// Maps the file, whose size states its number of places.
fn map(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.read(true).write(true);
    let file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    let length = file.metadata()?.len() as usize;
    let places = length / size_of::<Entry>();
    let arguments = [
        0,
        length,
        (libc::PROT_READ | libc::PROT_WRITE) as usize,
        libc::MAP_SHARED as usize,
        file.as_raw_fd() as usize,
        0,
    ];
    // SAFETY: the call maps this file at an address that the kernel chooses.
    let mapped = unsafe { call(libc::SYS_mmap, arguments) };
    let mapped = usize::try_from(mapped).map_err(|_| io::ErrorKind::OutOfMemory)?;
    region::note(mapped, length);
    PLACES.store(places, Ordering::Relaxed);
    MAPPED.store(mapped, Ordering::Release);
    Ok(())
}

/// Returns the entry at a place; `None` for place 0, and beyond the capacity.
fn entry(at: usize) -> Option<&'static Entry> {
    let mapped = MAPPED.load(Ordering::Acquire);
    let is_valid = mapped != 0 && at != 0 && at < PLACES.load(Ordering::Relaxed);
    // SAFETY: the file is mapped with this many places for the rest of the process. All fields are atomic, since
    // processes share them, and valid with every content.
    is_valid.then(|| unsafe { &*(mapped as *const Entry).add(at) })
}

/// Takes a place. Returns 0 if there is none.
fn take() -> usize {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped == 0 {
        return 0;
    }
    // SAFETY: the first place is mapped, aligned, and holds the number of entries.
    let taken = unsafe { &*(mapped as *const AtomicU64) };
    let at = taken.fetch_add(1, Ordering::Relaxed) as usize + 1;
    if entry(at).is_some() { at } else { 0 }
}

/// Makes an entry. Returns its place; 0 if there is none.
fn enter(process: u32, namespace: u64, name: &[u8], state: State, error: i32) -> usize {
    let at = take();
    fill(at, process, namespace, name, state, error);
    at
}

fn fill(at: usize, process: u32, namespace: u64, name: &[u8], state: State, error: i32) {
    let Some(entry) = entry(at) else {
        return;
    };
    entry.state.store(State::Void as u32, Ordering::Relaxed);
    fence(Ordering::Release);
    let end = &name[name.len().saturating_sub(NAME_BYTES)..];
    let mut bytes = [0; NAME_BYTES];
    bytes[..end.len()].copy_from_slice(end);
    for (word, bytes) in entry.name.iter().zip(bytes.chunks_exact(8)) {
        let bytes = bytes.try_into().unwrap_or_default();
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    entry.process.store(process, Ordering::Relaxed);
    entry.namespace.store(namespace, Ordering::Relaxed);
    set_at(at, state, error);
}

fn set_at(at: usize, state: State, error: i32) {
    if let Some(entry) = entry(at) {
        let word = state as u32 | error.unsigned_abs() << 8;
        entry.state.store(word, Ordering::Release);
    }
}

/// States that the process wrote its report, or the error for which it could not.
pub(super) fn note(written: &io::Result<()>) {
    let at = OWN.load(Ordering::Relaxed);
    match written {
        Ok(()) => set_at(at, State::Reported, 0),
        Err(error) => {
            let error = error.raw_os_error().unwrap_or(match error.kind() {
                io::ErrorKind::FileTooLarge => libc::EFBIG,
                io::ErrorKind::OutOfMemory => libc::ENOMEM,
                io::ErrorKind::NotFound => libc::ENOENT,
                io::ErrorKind::PermissionDenied => libc::EACCES,
                _ => libc::EIO,
            });
            set_at(at, State::Failed, error);
        }
    }
}

/// Enters the child of a fork. It reports unless it inherits a filter, which forbids to ask for its number.
pub(super) fn after_fork_in_child(reports: bool) {
    let parent = entry(OWN.swap(0, Ordering::Relaxed));
    EXECUTED.store(0, Ordering::Relaxed);
    let name = parent.map_or([0; NAME_BYTES], Entry::name);
    let (process, state) = match reports {
        true => (process_id(), State::Begun),
        false => (0, State::Filtered),
    };
    if reports && HAS_OTHERS.load(Ordering::Relaxed) {
        NAMESPACE.store(pid_namespace(), Ordering::Relaxed);
    }
    let at = enter(process, namespace(), trimmed(&name), state, 0);
    OWN.store(at, Ordering::Relaxed);
}

impl Entry {
    fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        for (to, word) in name.chunks_exact_mut(8).zip(&self.name) {
            to.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        name
    }
}

fn trimmed(name: &[u8]) -> &[u8] {
    let end = name.iter().position(|&byte| byte == 0);
    &name[..end.unwrap_or(name.len())]
}

/// Enters a program that this process, whose number is `process`, is about to execute. `error` concerns the directory
/// for reports; 0 if the program can see it.
pub(super) fn executes(process: u32, name: &[u8], error: i32) {
    if EXECUTED.load(Ordering::Relaxed) == 0 {
        EXECUTED.store(take(), Ordering::Relaxed);
    }
    let at = EXECUTED.load(Ordering::Relaxed);
    fill(at, process, namespace(), name, State::Executes, error);
}

/// Withdraws the last entry of [`executes`], because the execution failed.
pub(super) fn stays() {
    set_at(EXECUTED.load(Ordering::Relaxed), State::Void, 0);
}

/// Enters a program that a child without a report is about to execute. The child may share the memory of its parent.
pub(super) fn child_executes(name: &[u8], error: i32) {
    if MAPPED.load(Ordering::Relaxed) != 0 && !filter::is_restricted() {
        let namespace = pid_namespace();
        enter(process_id(), namespace, name, State::Executes, error);
    }
}

/// Withdraws the entry of a child that could not execute a program and ends, or enters a copy of this process that a
/// system call made. `is_lent` if the child shares the memory of its parent.
pub(super) fn child_ends(is_lent: bool) {
    let mapped = MAPPED.load(Ordering::Acquire);
    if mapped == 0 || filter::is_restricted() {
        return;
    }
    let (process, namespace) = (process_id(), pid_namespace());
    // SAFETY: as in `take`.
    let taken = unsafe { &*(mapped as *const AtomicU64) }.load(Ordering::Relaxed) as usize;
    let last = taken.min(PLACES.load(Ordering::Relaxed).saturating_sub(1));
    let is_it = |at: &usize| {
        entry(*at).is_some_and(|entry| {
            entry.process.load(Ordering::Relaxed) == process
                && entry.namespace.load(Ordering::Relaxed) == namespace
        })
    };
    match (1..=last).rev().find(is_it) {
        Some(at) => set_at(at, State::Void, 0),
        None if is_lent => {}
        None => {
            let name = entry(OWN.load(Ordering::Relaxed)).map_or([0; NAME_BYTES], Entry::name);
            enter(process, namespace, trimmed(&name), State::Copied, 0);
        }
    }
}

/// Enters a child that this process has started with another program, unless it may be in another namespace.
pub(super) fn spawned(process: u32, name: &[u8]) {
    if !HAS_OTHERS.load(Ordering::Relaxed) {
        enter(process, namespace(), name, State::Spawned, 0);
    }
}

/// Notes that later children may be in another namespace of processes.
pub(super) fn may_change_namespace() {
    HAS_OTHERS.store(true, Ordering::Relaxed);
}

/// Returns the number of the namespace of processes; 0 if it is unknown.
pub(super) fn namespace() -> u64 {
    NAMESPACE.load(Ordering::Relaxed)
}
