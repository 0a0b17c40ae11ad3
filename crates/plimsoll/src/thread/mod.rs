//! The threads of the process: what each is doing, and where, without stopping them; and who
//! created it. The profiles `goroutine` and `threadcreate`, and [`crate::dump()`], are made of
//! that.
//!
//! [`threads`] lists them for the program. [`spawn()`], [`scope`] and [`Builder`] are for programs
//! in which Plimsoll does not see the creation of threads by itself, and pass labels on.
//!
//! # How
//! The system says of a thread that is *blocked* in which call it is, and where its stack is. That
//! is read from outside (`blocked`), and the thread does not notice; whether it went on meanwhile
//! is checked afterwards. A thread that is *running* has no stack that holds still: it is
//! interrupted by a signal (`requests`), once, for some microseconds, and reads its own.
//!
//! What cannot be had is said, and is never an error: a thread that blocks the signal is there with
//! its name and state. Where there is no `/proc`, there is the calling thread only.

pub(crate) mod births;
mod blocked;
pub(crate) mod calls;
pub(crate) mod joins;
mod record;
mod requests;
mod signal;
mod spawn;
pub(crate) mod stacks;
mod times;

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use crate::label::{self, Labels};
use crate::os::task_file::TaskDirectory;
use crate::stack::{self, End, Registers, StackReader, Start};
use crate::{keeper, os, own_thread};

use births::Creator;
use blocked::Found;
pub(crate) use requests::INTERRUPTIONS;
pub(crate) use signal::{range as signals, set_wanted as set_signal};

pub use record::{ThreadRecord, ThreadState, threads};
pub use spawn::{Builder, Scope, scope, spawn};

/// Before a fork.
pub(crate) fn before_fork() {
    births::before_fork();
}

/// In the child of a fork.
pub(crate) fn after_fork_in_child() {
    requests::after_fork_in_child();
    births::after_fork_in_child();
    stacks::after_fork_in_child();
    label::after_fork_in_child();
}

/// Whether the creation of every thread is seen.
fn creations_are_seen() -> bool {
    #[cfg(feature = "interpose")]
    return crate::hook::threads::are_seen();
    #[cfg(not(feature = "interpose"))]
    false
}

/// A thread, and who created it.
pub(crate) struct Creation {
    pub(crate) name: String,
    pub(crate) creator: Option<Creator>,
}

/// The program's threads, with those who created them as far as that is known. As [`read_all`]
/// otherwise, but that no stack is read.
pub(crate) fn creations() -> Vec<Creation> {
    let creators: HashMap<i32, Creator> = births::all().collect();
    let tasks = TaskDirectory::open().ok();
    let ids = list().unwrap_or_else(|| vec![os::thread_id()]).into_iter();
    let of_program = ids.filter(|&id| !own_thread::is_own(id));
    let creation = |id| Creation {
        name: tasks
            .as_ref()
            .map(|tasks| name(tasks, id))
            .unwrap_or_default(),
        creator: creators.get(&id).copied(),
    };
    of_program.map(creation).collect()
}

/// A thread as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    /// The system's number of it.
    pub(crate) id: i32,
    /// As the system has it: at most 15 bytes. Empty if it does not say.
    pub(crate) name: String,
    pub(crate) state: State,
    /// Return addresses, leaf first.
    pub(crate) frames: Arc<[usize]>,
    pub(crate) extent: Extent,
    /// Those of what it did a moment after its stack was read.
    pub(crate) labels: Labels,
    /// For how long it has not run; `None` if that is not known, or was not asked for.
    pub(crate) waited: Option<Duration>,
    /// Who created it; `None` if that is not known, or was not asked for.
    pub(crate) creator: Option<Creator>,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// It is executing, or would be if there were a processor for it.
    Running,
    /// It waits in the system call of that number.
    Waiting(i64),
    /// It waits outside of any: for memory to be brought in.
    Faulting,
    /// It waits, and the system does not say for what.
    Asleep,
    /// The system does not say.
    Unknown,
}

/// How much of a stack there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All, to where the thread began, or as much as is kept of a stack.
    Whole,
    /// It leads no further.
    Cut,
    /// Nothing, and why, in brackets.
    None(&'static str),
}

/// What there was, and what could not be had.
pub(crate) struct Threads {
    /// The calling one first, if it is one of the program's.
    pub(crate) threads: Vec<Thread>,
    /// What is wrong with all of them, if anything.
    pub(crate) trouble: Option<&'static str>,
}

/// How much is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// What can be counted: stacks as deep as they are kept elsewhere.
    ToCount,
    /// All of each stack, who created each thread, and how long it has waited, which takes as long
    /// as the rest.
    InFull,
}

/// How often a thread that is running is looked at again before it is interrupted: most threads
/// that are met running are about to wait.
const LOOKS: usize = 3;

/// How many threads of the program there are now.
pub(crate) fn count() -> usize {
    let threads = list().unwrap_or_else(|| vec![os::thread_id()]);
    let of_program = threads.iter().filter(|&&id| !own_thread::is_own(id));
    of_program.count()
}

/// How many threads there are now, with Plimsoll's own, and how many of them are the program's: a
/// system call. At least one each.
pub(crate) fn counts() -> (usize, usize) {
    let all = os::task_file::threads().unwrap_or(1).max(1);
    (all, all.saturating_sub(own_thread::count()).max(1))
}

/// The program's threads that there are now, each once. Those that begin later are not in it, nor
/// are those that end before they were looked at.
///
/// Reads files and takes locks: not for hooks.
#[inline(never)]
pub(crate) fn read_all(how: How) -> Threads {
    let depth = match how {
        How::ToCount => stack::depth(),
        How::InFull => stack::DEEPEST,
    };
    let me = os::thread_id();
    let mut found = Vec::new();
    if !own_thread::is_own(me) {
        found.push(calling(me, depth));
    }
    let (Some(mut ids), Ok(tasks)) = (list(), TaskDirectory::open()) else {
        return Threads {
            threads: found,
            trouble: Some("/proc/self/task cannot be read: only the calling thread is here"),
        };
    };
    ids.retain(|&id| id != me && !own_thread::is_own(id));
    found.reserve(ids.len());
    let refused = read(&tasks, ids, depth, &mut found);
    let labels: HashMap<i32, Labels> = label::of_threads().collect();
    for thread in &mut found {
        thread.name = name(&tasks, thread.id);
        if let Some(&labels) = labels.get(&thread.id) {
            thread.labels = labels;
        }
    }
    if how == How::InFull {
        times::add(&mut found);
        let creators: HashMap<i32, Creator> = births::all().collect();
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

/// One thread of the program's, other than the calling one, to be counted; without its name.
/// `None` if it has ended, or if the system does not say what threads do.
///
/// Reads files and takes locks: not for hooks.
pub(crate) fn one(id: i32) -> Option<Thread> {
    let tasks = TaskDirectory::open().ok()?;
    let mut found = Vec::new();
    read(&tasks, vec![id], stack::depth(), &mut found);
    let mut thread = found.pop()?;
    let labels = label::of_threads().find(|&(labelled, _)| labelled == id);
    thread.labels = labels.map_or(Labels::NONE, |(_, labels)| labels);
    Some(thread)
}

/// Reads these threads, without names and labels. True if the system does not say what they do:
/// then all were interrupted.
fn read(tasks: &TaskDirectory, ids: Vec<i32>, depth: usize, found: &mut Vec<Thread>) -> bool {
    keeper::look();
    let mut reader = StackReader::new();
    let mut frames = vec![0; depth];
    let mut refused = false;
    let mut running = ids;
    for look in 0..LOOKS {
        if look > 0 {
            crate::primitives::yield_now();
        }
        running.retain(
            |&id| match blocked::read(tasks, id, &mut reader, &mut frames) {
                Found::Blocked(thread) => {
                    found.push(thread);
                    false
                }
                Found::Ended => false,
                Found::Running => true,
                Found::Refused => {
                    refused = true;
                    true
                }
            },
        );
        if running.is_empty() || refused {
            break;
        }
    }
    found.extend(requests::interrupt(tasks, &running, !refused, depth));
    refused
}

/// The numbers of all threads; `None` if the system does not say.
pub(crate) fn list() -> Option<Vec<i32>> {
    let entries = fs::read_dir("/proc/self/task").ok()?;
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Some(ids.collect())
}

/// The calling thread.
#[inline(always)]
fn calling(id: i32, depth: usize) -> Thread {
    let start = Start::Here(Registers::here());
    let frames: Arc<[usize]> = stack::with_stack(start, depth, |frames| frames.into());
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
    fn of(end: End) -> Self {
        match end {
            End::Outermost | End::Room => Self::Whole,
            End::Lost | End::Stale => Self::Cut,
        }
    }
}

/// What a thread is called.
fn name(tasks: &TaskDirectory, id: i32) -> String {
    let mut buffer = [0; 64];
    let name = tasks
        .file(id, "comm")
        .and_then(|file| file.read(&mut buffer).map(<[u8]>::len));
    let name = String::from_utf8_lossy(&buffer[..name.unwrap_or(0)]);
    name.trim_end_matches('\n').to_owned()
}
