//! A counting semaphore for tasks.

use std::fmt;
use std::mem;
use std::sync::Arc;

use tokio::sync::{AcquireError, TryAcquireError};

use super::waiting::{ThreadWait, Waiting, at_once};
use crate::contention::WaitKind;
use crate::contention::awaited::Signal;

/// A [`tokio::sync::Semaphore`] whose waits are in the block profile.
///
/// A semaphore has no owner, since a task may add a permit that it never took. So no task is
/// charged for a wait, which lasts until permits were last added before the task continued.
pub struct Semaphore {
    added: Signal,
    inner: tokio::sync::Semaphore,
}

/// Counterpart of [`tokio::sync::SemaphorePermit`].
#[must_use = "if unused the permits are released immediately"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

/// Counterpart of [`tokio::sync::OwnedSemaphorePermit`].
#[must_use = "if unused the permits are released immediately"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

type Acquired<'a> = Result<tokio::sync::SemaphorePermit<'a>, AcquireError>;

impl Semaphore {
    /// The maximum number of permits: [`tokio::sync::Semaphore::MAX_PERMITS`].
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    /// Panics if `permits` is more than [`Semaphore::MAX_PERMITS`].
    #[must_use]
    #[track_caller]
    pub const fn new(permits: usize) -> Self {
        Self::create(None, permits)
    }

    /// Same as [`Semaphore::new`]; counterpart of [`tokio::sync::Semaphore::const_new`].
    ///
    /// # Panics
    /// Panics if `permits` is more than [`Semaphore::MAX_PERMITS`].
    #[must_use]
    #[track_caller]
    pub const fn const_new(permits: usize) -> Self {
        Self::create(None, permits)
    }

    /// Creates a semaphore with a name.
    ///
    /// # Panics
    /// Panics if `permits` is more than [`Semaphore::MAX_PERMITS`].
    #[must_use]
    #[track_caller]
    pub const fn named(name: &'static str, permits: usize) -> Self {
        Self::create(Some(name), permits)
    }

    #[track_caller]
    const fn create(name: Option<&'static str>, permits: usize) -> Self {
        Self {
            added: Signal::new(name),
            inner: tokio::sync::Semaphore::const_new(permits),
        }
    }

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.added.given_name()
    }

    /// Behaves like [`tokio::sync::Semaphore::available_permits`].
    pub fn available_permits(&self) -> usize {
        self.inner.available_permits()
    }

    /// Behaves like [`tokio::sync::Semaphore::add_permits`].
    ///
    /// # Panics
    /// Panics if the number of permits would exceed [`Semaphore::MAX_PERMITS`].
    #[inline]
    pub fn add_permits(&self, n: usize) {
        // A forgotten permit adds none, and ends no wait.
        if n > 0 {
            self.added.give();
            self.inner.add_permits(n);
        }
    }

    /// Behaves like [`tokio::sync::Semaphore::forget_permits`].
    pub fn forget_permits(&self, n: usize) -> usize {
        self.inner.forget_permits(n)
    }

    /// Behaves like [`tokio::sync::Semaphore::acquire`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.take(1).await?;
        Ok(SemaphorePermit {
            semaphore: self,
            permits: 1,
        })
    }

    /// Behaves like [`tokio::sync::Semaphore::acquire_many`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    pub async fn acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.take(n).await?;
        Ok(SemaphorePermit {
            semaphore: self,
            permits: n as usize,
        })
    }

    /// Behaves like [`tokio::sync::Semaphore::acquire_owned`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.take(1).await?;
        Ok(self.owned_permit(1))
    }

    /// Behaves like [`tokio::sync::Semaphore::acquire_many_owned`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    pub async fn acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.take(n).await?;
        Ok(self.owned_permit(n))
    }

    /// Behaves like [`tokio::sync::Semaphore::blocking_acquire`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        let wait = ThreadWait::begin(WaitKind::Semaphore, &self.added);
        let acquired = self.inner.blocking_acquire();
        wait.end();
        self.permit(acquired, 1)
    }

    /// Behaves like [`tokio::sync::Semaphore::blocking_acquire_many`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        let wait = ThreadWait::begin(WaitKind::Semaphore, &self.added);
        let acquired = self.inner.blocking_acquire_many(n);
        wait.end();
        self.permit(acquired, n)
    }

    /// Behaves like [`tokio::sync::Semaphore::blocking_acquire_owned`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.blocking_acquire_many_owned(1)
    }

    /// Behaves like [`tokio::sync::Semaphore::blocking_acquire_many_owned`].
    ///
    /// # Errors
    /// Fails if the semaphore is closed.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.blocking_acquire_many(n)?.forget();
        Ok(self.owned_permit(n))
    }

    /// Behaves like [`tokio::sync::Semaphore::try_acquire`].
    ///
    /// # Errors
    /// Fails if no permit is available, or the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Behaves like [`tokio::sync::Semaphore::try_acquire_many`].
    ///
    /// # Errors
    /// Fails if fewer than `n` permits are available, or the semaphore is closed.
    pub fn try_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        mem::forget(self.inner.try_acquire_many(n)?);
        Ok(SemaphorePermit {
            semaphore: self,
            permits: n as usize,
        })
    }

    /// Behaves like [`tokio::sync::Semaphore::try_acquire_owned`].
    ///
    /// # Errors
    /// Fails if no permit is available, or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// Behaves like [`tokio::sync::Semaphore::try_acquire_many_owned`].
    ///
    /// # Errors
    /// Fails if fewer than `n` permits are available, or the semaphore is closed.
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        mem::forget(self.inner.try_acquire_many(n)?);
        Ok(self.owned_permit(n))
    }

    /// Behaves like [`tokio::sync::Semaphore::close`].
    pub fn close(&self) {
        self.added.give();
        self.inner.close();
    }

    /// Behaves like [`tokio::sync::Semaphore::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Takes `n` permits; waits until they are available.
    #[allow(
        clippy::manual_async_fn,
        reason = "the future of an async function stores each argument twice"
    )]
    fn take(&self, n: u32) -> impl Future<Output = Result<(), AcquireError>> {
        async move {
            if !at_once(|| self.inner.try_acquire_many(n).map(mem::forget).is_ok()).await {
                let acquired = self.inner.acquire_many(n);
                mem::forget(Waiting::new(WaitKind::Semaphore, &self.added, acquired).await?);
            }
            Ok(())
        }
    }

    #[inline]
    fn permit<'a>(
        &'a self,
        acquired: Acquired<'a>,
        n: u32,
    ) -> Result<SemaphorePermit<'a>, AcquireError> {
        mem::forget(acquired?);
        Ok(SemaphorePermit {
            semaphore: self,
            permits: n as usize,
        })
    }

    /// Returns a guard of `n` permits, which the caller must have taken.
    #[inline]
    fn owned_permit(self: Arc<Self>, n: u32) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit {
            semaphore: self,
            permits: n as usize,
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Implements the methods and the drop of both kinds of permits.
macro_rules! permit {
    ({$($lifetime:lifetime)?} $permit:ty, $of:literal, $semaphore:ty, |$this:ident| $get:expr) => {
        impl$(<$lifetime>)? $permit {
            #[doc = concat!("Behaves like [`tokio::sync::", $of, "::forget`].")]
            pub fn forget(mut self) {
                self.permits = 0;
            }

            #[doc = concat!("Behaves like [`tokio::sync::", $of, "::merge`].")]
            ///
            /// # Panics
            /// Panics if the permits belong to different semaphores.
            #[track_caller]
            pub fn merge(&mut self, mut other: Self) {
                assert!(
                    std::ptr::eq::<Semaphore>(&*self.semaphore, &*other.semaphore),
                    "merging permits from different semaphore instances"
                );
                self.permits += mem::take(&mut other.permits);
            }

            #[doc = concat!("Behaves like [`tokio::sync::", $of, "::split`].")]
            pub fn split(&mut self, n: usize) -> Option<Self> {
                self.permits = self.permits.checked_sub(n)?;
                Some(Self {
                    semaphore: self.semaphore.clone(),
                    permits: n,
                })
            }

            #[doc = concat!("Behaves like [`tokio::sync::", $of, "::semaphore`].")]
            pub fn semaphore(&self) -> &$semaphore {
                let $this = self;
                $get
            }

            #[doc = concat!("Behaves like [`tokio::sync::", $of, "::num_permits`].")]
            pub fn num_permits(&self) -> usize {
                self.permits
            }
        }

        impl$(<$lifetime>)? Drop for $permit {
            fn drop(&mut self) {
                self.semaphore.add_permits(self.permits);
            }
        }
    };
}

permit!({'a} SemaphorePermit<'a>, "SemaphorePermit", Semaphore, |this| this.semaphore);
permit!({} OwnedSemaphorePermit, "OwnedSemaphorePermit", Arc<Semaphore>, |this| &this.semaphore);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::awaited::Awaited;

    #[test]
    fn releasing_no_permit_ends_no_wait() {
        let semaphore = Semaphore::new(1);
        let permit = semaphore.try_acquire().unwrap();
        let start = semaphore.added.enter(WaitKind::Semaphore);
        permit.forget();
        semaphore.add_permits(0);
        assert_eq!(semaphore.added.leave(start), None);
        let start = semaphore.added.enter(WaitKind::Semaphore);
        semaphore.add_permits(1);
        assert!(semaphore.added.leave(start).is_some());
    }
}
