//! Threads as they are reported to the program.

use std::time::Duration;

use crate::thread::{CaptureDetail, Extent, State, Thread, read_all};
use plimsoll_core::label::Labels;
use plimsoll_core::{internal_scope, overhead};

/// A thread of the program at the moment at which [`threads`] read it.
///
/// ```
/// for thread in plimsoll::thread::threads() {
///     let waited = thread.waited().unwrap_or_default();
///     println!("{}: {:?} for {waited:?}, {}", thread.name(), thread.state(), thread.labels());
///     assert_ne!(thread.id(), 0);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ThreadRecord(Thread);

/// The state of a thread.
///
/// ```
/// use plimsoll::thread::{ThreadState, threads};
///
/// let threads = threads();
/// let waiting = threads.iter().filter(|thread| thread.state() == ThreadState::Waiting);
/// println!("{} of {} threads wait", waiting.count(), threads.len());
/// // The first is the calling thread.
/// assert_eq!(threads[0].state(), ThreadState::Running);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadState {
    /// The thread executes code, or would if a processor were free.
    Running,
    /// The thread waits, in a system call or for memory to be read from disk.
    Waiting,
    /// The system does not report the state.
    Unknown,
}

/// Lists the threads of the program with their stacks, each once, without stopping them. The
/// calling thread comes first.
///
/// Threads that end or begin meanwhile may be missing. Plimsoll's own threads are omitted. A signal
/// interrupts each running thread for some microseconds, to read its stack. Takes some microseconds
/// for each thread, and up to 100 ms to find out how long threads have waited. Reads `/proc`:
/// without it, the calling thread is the only one.
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
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let found = read_all(CaptureDetail::InFull).threads.into_iter();
    found.map(ThreadRecord).collect()
}

impl ThreadRecord {
    /// Returns the system's number of the thread, as in `/proc/self/task`.
    pub fn id(&self) -> u32 {
        self.0.id as u32
    }

    /// Returns the system's name of the thread, of at most 15 bytes. Empty if it is unknown.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the state of the thread.
    pub fn state(&self) -> ThreadState {
        match self.0.state {
            State::Running => ThreadState::Running,
            State::Waiting(_) | State::Faulting | State::Asleep => ThreadState::Waiting,
            State::Unknown => ThreadState::Unknown,
        }
    }

    /// Returns the time since the thread last ran, to about a millisecond; `None` if it runs, or if
    /// the time is unknown.
    pub fn waited(&self) -> Option<Duration> {
        self.0.waited
    }

    /// Returns the labels that the thread had a moment after its stack was read.
    pub fn labels(&self) -> Labels {
        self.0.labels
    }

    /// Returns the call stack as return addresses, leaf first, for
    /// `profile::frames`. Empty if it could not be read.
    pub fn stack(&self) -> &[usize] {
        &self.0.frames
    }

    /// Returns whether [`ThreadRecord::stack`] reaches the function with which the thread began, or
    /// the maximum depth of stacks.
    pub fn is_stack_whole(&self) -> bool {
        self.0.extent == Extent::Whole
    }

    /// Returns the system's number of the thread that created this one; `None` for the main thread,
    /// and if it is unknown.
    pub fn creator(&self) -> Option<u32> {
        self.0.creator.map(|creator| creator.id as u32)
    }

    /// Returns the stack that [`ThreadRecord::creator`] had when it created this thread, like
    /// [`ThreadRecord::stack`]. Empty if it is unknown.
    pub fn creation_stack(&self) -> &'static [usize] {
        self.0.creator.map_or(&[], |creator| creator.frames)
    }
}
