//! Other systems, which report no other threads than the calling one to Plimsoll.

#![allow(missing_docs, reason = "documented in the counterpart")]

use std::ops::RangeInclusive;

use plimsoll_process::task_file::TaskDirectory;

use crate::thread::Thread;
use plimsoll_core::histogram::TimeCounts;
use plimsoll_core::stack::StackReader;

pub mod calls {
    /// The activity of a thread that is in a system call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Doing {
        /// Waiting for another thread; the stack shows for what.
        Futex,
        /// A word for the activity, or else the name of the call.
        Plainly(&'static str),
    }

    /// Returns the activity of a thread that is in the system call of this number.
    pub fn doing(_: i64) -> Doing {
        Doing::Plainly("syscall")
    }
}

pub mod joins {
    /// A thread that waits without limit for the end of another.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Join {
        pub id: i32,
        pub joined: i32,
        pub joined_thread: usize,
    }

    /// The location of a thread's number, which is unknown.
    #[derive(Clone, Copy, Debug)]
    pub struct Descriptors(std::convert::Infallible);

    impl Descriptors {
        /// Returns `None`: threads cannot be read from outside.
        pub fn of_system() -> Option<Self> {
            None
        }

        /// Is never called.
        pub fn number(self, _: usize, _: &mut [usize]) -> Option<i32> {
            match self.0 {}
        }

        /// Is never called.
        pub fn joins(self) -> Vec<Join> {
            match self.0 {}
        }
    }
}

/// The reason why other threads are missing.
pub(crate) const NO_THREADS: &str =
    "other threads are not available on this system: only the calling thread is here";

/// Durations of the interruptions of threads, of which there are none.
pub static INTERRUPTIONS: TimeCounts<1> = TimeCounts::new();

/// Returns the name of the calling thread, which is unknown.
pub(crate) fn own_name() -> String {
    String::new()
}

/// Returns `None`: the system reports no threads.
pub(crate) fn list() -> Option<Vec<i32>> {
    None
}

/// Returns false: the system reports no states of threads.
pub(crate) fn has_ended(_tasks: &TaskDirectory, _id: i32) -> bool {
    false
}

/// Returns `None`: the system reports no exit codes of threads.
pub(crate) fn exit_code(_tasks: &TaskDirectory) -> Option<i32> {
    None
}

/// Ends the process.
pub(crate) fn end_with(_code: i32) -> ! {
    std::process::exit(0)
}

/// Returns no signals: none interrupts a thread.
#[expect(clippy::reversed_empty_ranges, reason = "it is meant to be empty")]
pub fn signals() -> RangeInclusive<i32> {
    1..=0
}

/// Does nothing.
pub fn set_signal(_: i32) {}

/// Reads no thread.
pub(crate) fn read(
    _: &TaskDirectory,
    _: Vec<i32>,
    _: usize,
    _: &mut StackReader,
    _: &mut Vec<Thread>,
) -> bool {
    true
}

/// Adds no waiting times.
pub(crate) fn add_times(_: &mut [Thread]) {}
