//! Threads whose creator is known where `pthread_create` is not taken over.

use std::io;
use std::thread::JoinHandle;

use super::births::{self, Birth};
use super::stacks;
use crate::label;
use crate::stack::{Registers, Start};

/// As [`std::thread::spawn`], with the stack of the caller remembered, for the profile
/// `threadcreate`, and with the [labels](crate::label) of the caller to begin with.
///
/// With the feature `interpose`, that is done for every thread that the program creates, and this
/// is the same as the standard library's.
///
/// # Panics
/// If the system has no more threads.
#[inline(never)]
pub fn spawn<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new()
        .spawn(work)
        .expect("the system has no more threads")
}

/// As [`std::thread::Builder`], for [`spawn`].
#[derive(Debug)]
pub struct Builder(std::thread::Builder);

impl Builder {
    /// A thread as the standard library makes it.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(std::thread::Builder::new())
    }

    /// Names it.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// The size of its stack, in bytes.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Self {
        Self(self.0.stack_size(bytes))
    }

    /// Starts it.
    ///
    /// # Errors
    /// The system's: there are too many threads, or there is no memory.
    #[inline(never)]
    pub fn spawn<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let unborn = Unborn(if super::creations_are_seen() {
            None
        } else {
            births::enter(Start::Here(Registers::here()))
        });
        let labels = label::current();
        self.0.spawn(move || {
            unborn.begin();
            stacks::enter();
            label::set(labels);
            work()
        })
    }
}

/// A thread that does not run yet, and may never.
struct Unborn(Option<&'static Birth>);

impl Unborn {
    fn begin(mut self) {
        if let Some(birth) = self.0.take() {
            birth.begin();
        }
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        if let Some(birth) = self.0 {
            birth.release();
        }
    }
}
