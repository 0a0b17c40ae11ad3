//! A thread, as it is reported to the program.

use std::time::Duration;

use super::{Extent, How, State, Thread, read_all};
use crate::label::Labels;
use crate::{own, own_time};

/// A thread of the program at the moment at which [`threads`] read it.
#[derive(Clone, Debug)]
pub struct ThreadRecord(Thread);

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadState {
    /// It executes code, or would if a processor were free.
    Running,
    /// It waits, in a system call or for memory to be read from disk.
    Waiting,
    /// The system does not report it.
    Unknown,
}

/// Lists the threads of the program with their stacks, each once, without stopping them. The
/// calling thread comes first.
///
/// Threads that end or begin meanwhile may be missing. Plimsoll's own threads are left out. A thread
/// that runs is interrupted by a signal for some microseconds, to read its stack. Takes some
/// microseconds for each thread, and up to 100 ms to find out how long threads have waited. Reads
/// `/proc`: without it, the calling thread is the only one.
///
/// ```
/// use plimsoll::profile::{Detail, frames};
///
/// for thread in plimsoll::thread::threads() {
///     println!("{} {} {:?}", thread.id(), thread.name(), thread.state());
///     for frame in frames(thread.stack(), Detail::Names) {
///         println!("\t{}", frame.function.unwrap_or_default());
///     }
/// }
/// ```
#[inline(never)]
pub fn threads() -> Vec<ThreadRecord> {
    let (_own, _time) = (own::scope(), own_time::measure());
    let found = read_all(How::InFull).threads.into_iter();
    found.map(ThreadRecord).collect()
}

impl ThreadRecord {
    /// The system's number of the thread, as in `/proc/self/task`.
    pub fn id(&self) -> u32 {
        self.0.id as u32
    }

    /// The name that the system has, of at most 15 bytes. Empty if it is not known.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the thread does.
    pub fn state(&self) -> ThreadState {
        match self.0.state {
            State::Running => ThreadState::Running,
            State::Waiting(_) | State::Faulting | State::Asleep => ThreadState::Waiting,
            State::Unknown => ThreadState::Unknown,
        }
    }

    /// How long the thread has not run, to about a millisecond; `None` if it runs, or if it is not
    /// known.
    pub fn waited(&self) -> Option<Duration> {
        self.0.waited
    }

    /// The labels of what the thread did a moment after its stack was read.
    pub fn labels(&self) -> Labels {
        self.0.labels
    }

    /// The call stack as return addresses, leaf first, for
    /// [`profile::frames`](crate::profile::frames()). Empty if it could not be read.
    pub fn stack(&self) -> &[usize] {
        &self.0.frames
    }

    /// Whether [`ThreadRecord::stack`] reaches to where the thread began, or as deep as stacks are
    /// kept.
    pub fn is_stack_whole(&self) -> bool {
        self.0.extent == Extent::Whole
    }

    /// The system's number of the thread that created this one; `None` for the main thread, and if
    /// it is not known.
    pub fn creator(&self) -> Option<u32> {
        self.0.creator.map(|creator| creator.id as u32)
    }

    /// The stack of [`ThreadRecord::creator`] when it created this thread, as
    /// [`ThreadRecord::stack`]. Empty if it is not known.
    pub fn creation_stack(&self) -> &'static [usize] {
        self.0.creator.map_or(&[], |creator| creator.frames)
    }
}
