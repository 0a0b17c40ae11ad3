//! The threads of the process: their activities and stacks, read without stopping them, and their
//! creators. The profiles `goroutine` and `threadcreate`, and [`crate::dump()`], use these.
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

pub use plimsoll_threads::thread::{
    Builder, Scope, ThreadRecord, ThreadState, scope, spawn, threads,
};
