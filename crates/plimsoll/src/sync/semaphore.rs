//! A counting semaphore.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::contended::{self, Key, keeps_its_frame, key_of, unseen};
use crate::contention::{Ended, WaitKind};

/// A number of permits, which threads take one by one and return.
///
/// ```
/// use plimsoll::sync::Semaphore;
///
/// static CONNECTIONS: Semaphore = Semaphore::named("connections", 2);
///
/// let first = CONNECTIONS.acquire();
/// let second = CONNECTIONS.acquire();
/// assert!(CONNECTIONS.try_acquire().is_none());
/// drop(first);
/// assert!(CONNECTIONS.try_acquire().is_some());
/// ```
///
/// A semaphore has no owner, since a thread may add a permit that it never took. So no thread is
/// charged for a wait, which lasts until the last permit was added before the thread got one.
/// Waiters are not served in order, and a thread that arrives at the right moment may overtake all
/// of them.
#[repr(C)]
pub struct Semaphore {
    name: Option<&'static str>,
    available: Mutex<usize>,
    added: Condvar,
}

/// A permit of a [`Semaphore`], which is returned when this is dropped.
#[must_use = "if unused the permit is released immediately"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
}

impl Semaphore {
    /// Creates a semaphore with `permits` permits.
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        Self {
            name: None,
            available: Mutex::new(permits),
            added: Condvar::new(),
        }
    }

    /// Creates a semaphore with a name.
    #[must_use]
    pub const fn named(name: &'static str, permits: usize) -> Self {
        Self {
            name: Some(name),
            available: Mutex::new(permits),
            added: Condvar::new(),
        }
    }

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Takes a permit; waits until one is available.
    pub fn acquire(&self) -> SemaphorePermit<'_> {
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        contended::wait(
            WaitKind::Semaphore,
            Key::of(self, self.name),
            || {
                let mut available = self.lock();
                while *available == 0 {
                    available = self
                        .added
                        .wait(available)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                *available -= 1;
            },
            |()| Ended::Woken,
        );
        keeps_its_frame();
        SemaphorePermit { semaphore: self }
    }

    /// Takes a permit, if one is available.
    pub fn try_acquire(&self) -> Option<SemaphorePermit<'_>> {
        unseen(|| {
            let mut available = self.lock();
            *available = available.checked_sub(1)?;
            Some(SemaphorePermit { semaphore: self })
        })
    }

    /// Adds permits, even beyond the initial number. The number saturates at `usize::MAX`.
    pub fn add_permits(&self, n: usize) {
        contended::wake(key_of(self), || {
            unseen(|| {
                let mut available = self.lock();
                *available = available.saturating_add(n);
                drop(available);
                match n {
                    0 => {}
                    1 => self.added.notify_one(),
                    _ => self.added.notify_all(),
                }
            });
        });
    }

    /// Returns the number of permits that are available now.
    pub fn available_permits(&self) -> usize {
        unseen(|| *self.lock())
    }

    /// Locks the number of permits. No code panics while it is locked, so poison is ignored.
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.available
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("available", &self.available_permits())
            .finish()
    }
}

impl SemaphorePermit<'_> {
    /// Drops the guard without returning the permit, so the semaphore has one permit less.
    pub fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn permits_are_taken_given_back_added_and_forgotten() {
        let semaphore = Semaphore::new(1);
        let permit = semaphore.acquire();
        assert!(semaphore.try_acquire().is_none());
        drop(permit);
        semaphore.acquire().forget();
        assert_eq!(semaphore.available_permits(), 0);
        semaphore.add_permits(0);
        assert!(semaphore.try_acquire().is_none());
        semaphore.add_permits(usize::MAX);
        semaphore.add_permits(1);
        assert_eq!(semaphore.available_permits(), usize::MAX);
        assert_eq!(semaphore.name(), None);
    }

    #[test]
    fn no_more_permits_are_held_than_exist() {
        static SEMAPHORE: Semaphore = Semaphore::named("two", 2);
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _permit = SEMAPHORE.acquire();
                        assert!(INSIDE.fetch_add(1, Ordering::Relaxed) < 2);
                        std::thread::yield_now();
                        INSIDE.fetch_sub(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(SEMAPHORE.available_permits(), 2);
        assert_eq!(SEMAPHORE.name(), Some("two"));
    }
}
