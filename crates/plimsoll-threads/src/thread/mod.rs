//! The threads of the process: their activities and stacks, read without stopping them, and their
//! creators. The profiles `goroutine` and `threadcreate`, and `plimsoll::dump()`, use these.
//!
//! [`threads`] lists them for the program. [`spawn()`], [`scope`] and [`Builder`] are for programs
//! in which Plimsoll does not see the creation of threads. They record creators and pass labels on.
//!
//! # How
//! For a *blocked* thread, the system reports its call and the location of its stack. Plimsoll
//! reads both from outside (`blocked`), without disturbing the thread, and then checks whether the
//! thread went on meanwhile. The stack of a *running* thread keeps changing. A signal interrupts
//! such a thread once, for some microseconds (`requests`), and the thread reads its own stack.
//!
//! Missing information is reported and is never an error: a thread that blocks the signal is listed
//! with its name and state. Without `/proc`, only the calling thread is listed.

pub mod creation;
mod os;
mod record;
mod spawn;
pub mod stacks;

use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_process::deep_stacks::Limit;
use plimsoll_process::task_file::{self, TaskDirectory};
use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::thread_id;

use plimsoll_core::internal_thread;
use plimsoll_core::label::{self, Labels};
use plimsoll_core::stack::{self, End, Registers, StackReader, Start};

use creation::Creator;
#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub use os::blocks;
pub use os::{INTERRUPTIONS, calls, joins, set_signal, signals};

pub use record::{ThreadRecord, ThreadState, threads};
pub use spawn::{Builder, Scope, scope, spawn};

/// The function that each thread calls when it begins.
static AT_BEGINNINGS: OnceLock<fn()> = OnceLock::new();

/// Registers a function for hooks that each thread calls when it begins, where that is seen, and at
/// its first allocation. A later call has no effect.
pub fn call_at_beginnings(observer: fn()) {
    let _ = AT_BEGINNINGS.set(observer);
}

/// Enters the calling thread, which may be known already. For hooks.
pub fn enter() {
    stacks::enter();
    if let Some(observer) = AT_BEGINNINGS.get() {
        observer();
    }
}

/// The threads of the process, by their numbers.
pub struct Listed {
    /// Those of the program.
    pub program: Vec<i32>,
    /// Those of Plimsoll.
    pub own: Vec<i32>,
}

/// Lists the threads of the process. Returns `None` if the system does not report them. Not for hooks.
pub fn list() -> Option<Listed> {
    let (threads, own) = internal_thread::beside(os::list);
    let mut program = threads?;
    let mut own_listed = own;
    own_listed.retain(|id| program.contains(id));
    program.retain(|id| !own_listed.contains(id));
    Some(Listed {
        program,
        own: own_listed,
    })
}

/// Returns the program's threads, or the calling thread if the system reports no others.
fn of_program() -> Vec<i32> {
    match list() {
        Some(threads) => threads.program,
        None => {
            let mut me = vec![thread_id()];
            me.retain(|&id| !internal_thread::is_own(id));
            me
        }
    }
}

/// Reports whether the creation of every thread is seen.
fn creations_are_seen() -> bool {
    #[cfg(feature = "interpose")]
    return plimsoll_interpose::threads::is_linked();
    #[cfg(not(feature = "interpose"))]
    false
}

/// A thread and its creator.
pub struct Creation {
    /// Whether it is the process's first thread, also in the child of a fork.
    pub is_first: bool,
    /// The system's name of the thread: at most 15 bytes. Empty if it is unknown.
    pub name: String,
    /// `None` if it is unknown.
    pub creator: Option<Creator>,
}

/// Returns the program's threads, with their creators where known. Like [`read_all`], but without
/// stacks.
pub fn creations() -> Vec<Creation> {
    let creators: HashMap<i32, Creator> = creation::all().collect();
    let (me, tasks) = (thread_id(), OnceCell::new());
    let of_other = |id| {
        let tasks = tasks.get_or_init(|| TaskDirectory::open().ok());
        tasks.as_ref().map(|tasks| name(tasks, id))
    };
    let creation = |id| Creation {
        is_first: id == plimsoll_sys::os::process_id() as i32,
        name: match id == me {
            true => os::own_name(),
            false => of_other(id).unwrap_or_default(),
        },
        creator: creators.get(&id).copied(),
    };
    of_program().into_iter().map(creation).collect()
}

/// A thread at the moment at which it was read.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The system's number of the thread.
    pub id: i32,
    /// The system's name of the thread: at most 15 bytes. Empty if it is unknown.
    pub name: String,
    /// What it did.
    pub state: State,
    /// Return addresses, leaf first.
    pub frames: Arc<[usize]>,
    /// How much of its stack was read.
    pub extent: Extent,
    /// The labels that the thread had a moment after its stack was read.
    pub labels: Labels,
    /// The time since it last ran; `None` if that is unknown or was not requested.
    pub waited: Option<Duration>,
    /// Its creator; `None` if that is unknown or was not requested.
    pub creator: Option<Creator>,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The thread is executing, or would be if a processor were free.
    Running,
    /// The thread waits in the system call of that number.
    Waiting(i64),
    /// The thread waits outside a system call, for memory to be read.
    Faulting,
    /// The thread waits, and the system does not report for what.
    Asleep,
    /// The system does not report the state.
    Unknown,
}

/// The completeness of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Complete up to the function with which the thread began, or limited to the maximum depth of stacks.
    Whole,
    /// The outer frames are missing.
    Cut,
    /// No stack, with the reason in brackets.
    None(&'static str),
}

/// The threads that were found, with a note of missing information.
pub struct Threads {
    /// The calling thread first, if it is one of the program's.
    pub threads: Vec<Thread>,
    /// A defect that concerns all threads, if any.
    pub trouble: Option<&'static str>,
}

/// The requested amount of information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureDetail {
    /// Enough for counts: stacks up to the depth of events.
    ToCount,
    /// The whole stack, creator and waiting time of each thread. Waiting times take as long as the
    /// rest.
    InFull,
}

/// Returns the current number of the program's threads.
pub fn count() -> usize {
    of_program().len()
}

/// Returns whether a thread of the program is left; true if the system does not report it. Not for hooks.
pub fn is_any_left() -> bool {
    let (Some(threads), Ok(tasks)) = (list(), TaskDirectory::open()) else {
        return true;
    };
    let mut ids = threads.program.into_iter();
    ids.any(|id| !os::has_ended(&tasks, id))
}

/// Ends the process as its first thread has ended: by the same signal, or with the same status. Returns if the system does
/// not report how.
pub fn end_as_first() {
    if let Some(code) = TaskDirectory::open()
        .ok()
        .and_then(|tasks| os::exit_code(&tasks))
    {
        os::end_with(code);
    }
}

/// Returns the current number of all threads, including Plimsoll's own, and the number of the
/// program's. Takes a system call. Both numbers are at least one.
pub fn counts() -> (usize, usize) {
    let all = task_file::threads().unwrap_or(1).max(1);
    (all, all.saturating_sub(internal_thread::count()).max(1))
}

/// Returns the program's current threads, each once. Threads that begin later, or end before they
/// are read, are missing.
///
/// Reads files and takes locks: not for hooks.
#[inline(never)]
pub fn read_all(how: CaptureDetail) -> Threads {
    let depth = match how {
        CaptureDetail::ToCount => stack::depth(),
        CaptureDetail::InFull => stack::DEEPEST,
    };
    let me = thread_id();
    let mut found = Vec::new();
    if !internal_thread::is_own(me) {
        found.push(calling(me, depth));
    }
    let (Some(Listed { program, .. }), Ok(tasks)) = (list(), TaskDirectory::open()) else {
        return Threads {
            threads: found,
            trouble: Some(os::NO_THREADS),
        };
    };
    let mut ids = program;
    ids.retain(|&id| id != me);
    found.reserve(ids.len());
    let refused = os::read(&tasks, ids, depth, &mut StackReader::new(), &mut found);
    let labels: HashMap<i32, Labels> = label::of_threads().collect();
    for thread in &mut found {
        thread.name = name(&tasks, thread.id);
        if let Some(&labels) = labels.get(&thread.id) {
            thread.labels = labels;
        }
    }
    if how == CaptureDetail::InFull {
        os::add_times(&mut found);
        let creators: HashMap<i32, Creator> = creation::all().collect();
        for thread in &mut found {
            thread.creator = creators.get(&thread.id).copied();
        }
    }
    Threads {
        threads: found,
        trouble: refused
            .then_some("/proc/self/task/*/syscall cannot be read: every thread was interrupted"),
    }
}

/// Returns those of these threads that have not ended, for counts; without their names. Empty if the
/// system does not report the states of threads.
///
/// Reads files and takes locks: not for hooks.
pub fn some(ids: Vec<i32>, reader: &mut StackReader) -> Vec<Thread> {
    let Ok(tasks) = TaskDirectory::open() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    os::read(&tasks, ids, stack::depth(), reader, &mut found);
    let labels: HashMap<i32, Labels> = label::of_threads().collect();
    for thread in &mut found {
        thread.labels = labels.get(&thread.id).copied().unwrap_or(Labels::NONE);
    }
    found
}

/// Returns the name of a thread; empty if it is unknown.
pub fn name_of(id: i32) -> String {
    if id == thread_id() {
        return os::own_name();
    }
    TaskDirectory::open().map_or_else(|_| String::new(), |tasks| name(&tasks, id))
}

/// Returns one thread of the program, other than the calling one, for counts; without its name.
/// `None` if it has ended, or if the system does not report the states of threads.
///
/// Reads files and takes locks: not for hooks.
pub fn one(id: i32) -> Option<Thread> {
    let tasks = TaskDirectory::open().ok()?;
    let mut found = Vec::new();
    let reader = &mut StackReader::new();
    os::read(&tasks, vec![id], stack::depth(), reader, &mut found);
    let mut thread = found.pop()?;
    let labels = label::of_threads().find(|&(labelled, _)| labelled == id);
    thread.labels = labels.map_or(Labels::NONE, |(_, labels)| labels);
    Some(thread)
}

/// Reads the calling thread.
#[inline(always)]
fn calling(id: i32, depth: usize) -> Thread {
    let start = Start::Here(Registers::here());
    let frames: Arc<[usize]> = stack::with_stack(start, Limit::new(depth), |frames| frames.into());
    Thread {
        id,
        name: String::new(),
        state: State::Running,
        extent: if frames.is_empty() && depth > 0 {
            Extent::None("[all the memory for stacks was in use]")
        } else {
            Extent::Whole
        },
        frames,
        labels: label::current(),
        waited: None,
        creator: None,
    }
}

impl Extent {
    fn from_end(end: End) -> Self {
        match end {
            End::Outermost | End::Full => Self::Whole,
            End::Lost | End::Stale => Self::Cut,
        }
    }
}

/// Returns the name of a thread; empty if it is unknown.
fn name(tasks: &TaskDirectory, id: i32) -> String {
    let mut buffer = [0; 64];
    let name = tasks
        .file(id, "comm")
        .and_then(|file| file.read(&mut buffer).map(<[u8]>::len));
    let name = String::from_utf8_lossy(&buffer[..name.unwrap_or(0)]);
    name.trim_end_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads are listed from their creation until after their last instruction, longer than their work takes.
    #[test]
    fn no_listing_counts_an_internal_thread_as_the_programs() {
        use std::collections::HashSet;
        use std::sync::{Arc, Mutex};
        let own = Arc::new(Mutex::new(Vec::new()));
        let mut listed = HashSet::new();
        for _ in 0..500 {
            let numbers = Arc::clone(&own);
            let entered = move || numbers.lock().unwrap().push(thread_id());
            let thread = internal_thread::spawn(c"plimsoll-test", entered).unwrap();
            let Some(threads) = crate::thread::list() else {
                return;
            };
            listed.extend(threads.program);
            drop(thread);
        }
        let own: HashSet<i32> = own.lock().unwrap().iter().copied().collect();
        let taken: Vec<_> = own.intersection(&listed).collect();
        assert!(!own.is_empty() && taken.is_empty(), "{taken:?}");
    }
}
