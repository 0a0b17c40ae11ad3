//! Threads whose creators are recorded even if `pthread_create` is not intercepted.

use std::io;
use std::thread::{JoinHandle, ScopedJoinHandle};

use crate::thread::creation::{self, CreatedThread};
use plimsoll_core::label;
use plimsoll_core::stack::{Registers, Start};

/// Spawns a thread as [`std::thread::spawn`] does. Records the caller's stack, for the profile
/// `threadcreate`, and passes on the caller's [labels](plimsoll_core::label).
///
/// With the feature `interpose`, Plimsoll does so for every thread that the program creates, and
/// this function is the same as the standard library's.
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
        .expect("the system cannot create a thread")
}

/// Creates a scope as [`std::thread::scope`] does. Like [`spawn`], it records the creators of its
/// threads, which begin with the [labels](plimsoll_core::label) of the thread that spawns them.
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
/// If a thread of the scope panicked and was not joined.
pub fn scope<'env, F, T>(work: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    std::thread::scope(|scope| work(Scope::from_std(scope)))
}

/// A scope for [`scope`], like [`std::thread::Scope`].
///
/// ```
/// use plimsoll::thread::{self, Scope};
///
/// fn increment<'scope>(scope: &'scope Scope<'scope, '_>, numbers: &'scope mut [i32]) {
///     for number in numbers {
///         scope.spawn(move || *number += 1);
///     }
/// }
/// let mut numbers = [1, 2, 3];
/// thread::scope(|scope| increment(scope, &mut numbers));
/// assert_eq!(numbers, [2, 3, 4]);
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Scope<'scope, 'env: 'scope>(std::thread::Scope<'scope, 'env>);

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Converts a scope of the standard library.
    fn from_std(scope: &'scope std::thread::Scope<'scope, 'env>) -> &'scope Self {
        // SAFETY: `Self` is `repr(transparent)` over `std::thread::Scope`, and the lifetimes are
        // the same.
        unsafe { &*std::ptr::from_ref(scope).cast::<Self>() }
    }

    /// Spawns a thread as [`std::thread::Scope::spawn`] does.
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
            .expect("the system cannot create a thread")
    }
}

/// A builder for [`spawn`] and [`scope`], like [`std::thread::Builder`].
///
/// ```
/// use plimsoll::thread::Builder;
///
/// let builder = Builder::new().name("worker".to_owned()).stack_size(1 << 20);
/// let worker = builder.spawn(|| std::thread::current().name() == Some("worker"))?;
/// assert!(worker.join().unwrap());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder(std::thread::Builder);

impl Builder {
    /// Returns a builder with the standard library's defaults.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(std::thread::Builder::new())
    }

    /// Sets the name of the thread.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// Sets the size of the thread's stack, in bytes.
    #[must_use]
    pub fn stack_size(self, bytes: usize) -> Self {
        Self(self.0.stack_size(bytes))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error if there are too many threads or no memory.
    #[inline(never)]
    pub fn spawn<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let unborn = PendingThread::enter(Start::Here(Registers::here()));
        self.0.spawn(unborn.beginning(work))
    }

    /// Starts the thread in a scope.
    ///
    /// # Errors
    /// The system's error if there are too many threads or no memory.
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
        let unborn = PendingThread::enter(Start::Here(Registers::here()));
        self.0.spawn_scoped(&scope.0, unborn.beginning(work))
    }
}

/// A thread that does not run yet, and may never run.
struct PendingThread(Option<&'static CreatedThread>);

impl PendingThread {
    /// Enters that the calling thread, with this `stack`, is about to create a thread.
    fn enter(stack: Start) -> Self {
        Self(if crate::thread::creations_are_seen() {
            None
        } else {
            creation::enter(stack)
        })
    }

    /// Returns the new thread's function: `work`, with the labels of the calling thread.
    fn beginning<T>(self, work: impl FnOnce() -> T) -> impl FnOnce() -> T {
        let labels = label::current();
        move || {
            self.begin();
            crate::thread::enter();
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

impl Drop for PendingThread {
    fn drop(&mut self) {
        if let Some(birth) = self.0 {
            birth.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::label::{Labels, current, set, with};

    use super::*;

    #[test]
    fn threads_begin_with_the_labels_of_their_creator_and_have_their_own() {
        let here = with([("tenant", "a")]);
        let there = spawn(|| {
            let inherited = current();
            set(Labels::of([("tenant", "b")]));
            inherited
        });
        assert_eq!(there.join().unwrap(), current());
        drop(here);
        let unlabelled = spawn(current);
        assert_eq!(unlabelled.join().unwrap(), Labels::NONE);
    }
}
