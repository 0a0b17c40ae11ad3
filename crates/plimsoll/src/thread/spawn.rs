//! Threads whose creator is known where `pthread_create` is not taken over.

use std::io;
use std::thread::{JoinHandle, ScopedJoinHandle};

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

/// As [`std::thread::scope`], whose threads have their creators remembered and begin with the
/// [labels](crate::label) of the thread that spawns them, as those of [`spawn`].
///
/// ```
/// use plimsoll::{label, thread};
///
/// let _tenant = label::with([("tenant", "acme")]);
/// let mut numbers = vec![1, 2, 3];
/// thread::scope(|scope| {
///     for number in &mut numbers {
///         scope.spawn(|| {
///             assert_eq!(label::current().get("tenant"), Some("acme"));
///             *number += 1;
///         });
///     }
/// });
/// assert_eq!(numbers, [2, 3, 4]);
/// ```
///
/// # Panics
/// If a thread of the scope panicked that was not joined.
pub fn scope<'env, F, T>(work: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    std::thread::scope(|scope| work(Scope::of(scope)))
}

/// As [`std::thread::Scope`], for [`scope`].
#[derive(Debug)]
#[repr(transparent)]
pub struct Scope<'scope, 'env: 'scope>(std::thread::Scope<'scope, 'env>);

impl<'scope, 'env> Scope<'scope, 'env> {
    /// The scope of the standard library, as this one.
    fn of(scope: &'scope std::thread::Scope<'scope, 'env>) -> &'scope Self {
        // SAFETY: `Self` is `repr(transparent)` over the type that the reference is of, and the
        // lifetime is the same.
        unsafe { &*std::ptr::from_ref(scope).cast::<Self>() }
    }

    /// As [`std::thread::Scope::spawn`].
    ///
    /// # Panics
    /// If the system has no more threads.
    #[inline(never)]
    pub fn spawn<F, T>(&'scope self, work: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Builder::new()
            .spawn_scoped(self, work)
            .expect("the system has no more threads")
    }
}

/// As [`std::thread::Builder`], for [`spawn`] and [`scope`].
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
        let unborn = Unborn::enter(Start::Here(Registers::here()));
        self.0.spawn(unborn.beginning(work))
    }

    /// Starts it in a scope.
    ///
    /// # Errors
    /// The system's: there are too many threads, or there is no memory.
    #[inline(never)]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        work: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let unborn = Unborn::enter(Start::Here(Registers::here()));
        self.0.spawn_scoped(&scope.0, unborn.beginning(work))
    }
}

/// A thread that does not run yet, and may never.
struct Unborn(Option<&'static Birth>);

impl Unborn {
    /// The calling thread, which is at `stack`, is about to create one.
    fn enter(stack: Start) -> Self {
        Self(if super::creations_are_seen() {
            None
        } else {
            births::enter(stack)
        })
    }

    /// What the thread is to do: `work`, with the labels of the calling thread.
    fn beginning<T>(self, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let labels = label::current();
        move || {
            self.begin();
            stacks::enter();
            label::set(labels);
            work()
        }
    }

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
