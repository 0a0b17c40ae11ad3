//! Tokio's locks, channels and notifications. Those that can have a name are wrapped, and drop it; the others are tokio's.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;

use ::tokio::sync as inner;

pub use ::tokio::sync::{
    AcquireError, Barrier, BarrierWaitResult, OnceCell, RwLockReadGuard, RwLockWriteGuard,
    SetError, SetOnce, SetOnceError, TryAcquireError, TryLockError, broadcast, futures, mpsc,
    oneshot, watch,
};

lock!(Mutex, const_new, T, &mut T);
lock!(RwLock, const_new, T, &mut T);
named!(Semaphore, const_new(permits: usize));
named!(Notify, const_new());

/// An `Arc` of what the value of another wraps.
macro_rules! unwrapped {
    ($arc:expr, $of:ty) => {
        // SAFETY: the wrapper is transparent and does not implement `Drop`, so the value is the same as either type.
        unsafe { Arc::from_raw(Arc::into_raw($arc) as *const $of) }
    };
}

#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized>(inner::MutexGuard<'a, T>, &'a Mutex<T>);

#[must_use = "if unused the Mutex will immediately unlock"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized>(
    inner::OwnedMutexGuard<T>,
    /// The `Arc` in that guard again, which alone counts.
    ManuallyDrop<Arc<Mutex<T>>>,
);

impl<T> Mutex<T> {
    #[inline]
    pub const fn const_new(t: T) -> Self {
        Self::new(t)
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.0.lock().await)
    }

    #[inline]
    pub async fn lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        OwnedMutexGuard::new(unwrapped!(self, inner::Mutex<T>).lock_owned().await)
    }

    #[track_caller]
    #[inline]
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        self.guard(self.0.blocking_lock())
    }

    #[track_caller]
    #[inline]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        OwnedMutexGuard::new(unwrapped!(self, inner::Mutex<T>).blocking_lock_owned())
    }

    #[inline]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.0.try_lock().map(|guard| self.guard(guard))
    }

    #[inline]
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        unwrapped!(self, inner::Mutex<T>)
            .try_lock_owned()
            .map(OwnedMutexGuard::new)
    }

    #[inline]
    fn guard<'a>(&'a self, guard: inner::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard(guard, self)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        this.1
    }
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    #[inline]
    fn new(guard: inner::OwnedMutexGuard<T>) -> Self {
        let mutex = Arc::as_ptr(inner::OwnedMutexGuard::mutex(&guard)) as *const Mutex<T>;
        // SAFETY: the wrapper is transparent. The `Arc` in `guard` is not dropped before this one is used for the
        // last time, and this one is never dropped.
        let mutex = ManuallyDrop::new(unsafe { Arc::from_raw(mutex) });
        Self(guard, mutex)
    }

    #[inline]
    pub fn mutex(this: &Self) -> &Arc<Mutex<T>> {
        &this.1
    }
}

guard!({'a, T: ?Sized} MutexGuard<'a, T>, mut);
guard!({T: ?Sized} OwnedMutexGuard<T>, mut);

impl<T> RwLock<T> {
    #[inline]
    pub const fn const_new(value: T) -> Self {
        Self::new(value)
    }

    #[track_caller]
    #[inline]
    pub const fn with_max_readers(value: T, max_reads: u32) -> Self {
        Self(inner::RwLock::const_with_max_readers(value, max_reads))
    }

    #[track_caller]
    #[inline]
    pub const fn const_with_max_readers(value: T, max_reads: u32) -> Self {
        Self::with_max_readers(value, max_reads)
    }
}

impl<T: ?Sized> RwLock<T> {
    #[inline]
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().await
    }

    #[inline]
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().await
    }

    forward! {
        #[track_caller]
        fn blocking_read(&self) -> RwLockReadGuard<'_, T>;
        fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError>;
        #[track_caller]
        fn blocking_write(&self) -> RwLockWriteGuard<'_, T>;
        fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError>;
    }
}

impl Default for Notify {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl Notify {
    #[must_use]
    #[inline]
    pub const fn const_new() -> Self {
        Self::new()
    }

    #[inline]
    pub fn notified_owned(self: Arc<Self>) -> futures::OwnedNotified {
        unwrapped!(self, inner::Notify).notified_owned()
    }

    forward! {
        fn notified(&self) -> futures::Notified<'_>;
        fn notify_one(&self);
        fn notify_last(&self);
        fn notify_waiters(&self);
    }
}

#[must_use = "if unused the permits are released immediately"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

#[must_use = "if unused the permits are released immediately"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

/// Makes a permit of what tokio's semaphore returned.
macro_rules! permit {
    ($permit:ident, $acquired:expr, $semaphore:expr, $permits:expr) => {{
        mem::forget($acquired?);
        Ok($permit {
            semaphore: $semaphore,
            permits: $permits as usize,
        })
    }};
}

impl Semaphore {
    pub const MAX_PERMITS: usize = inner::Semaphore::MAX_PERMITS;

    #[must_use]
    #[track_caller]
    #[inline]
    pub const fn const_new(permits: usize) -> Self {
        Self::new(permits)
    }

    #[inline]
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        permit!(SemaphorePermit, self.0.acquire().await, self, 1)
    }

    #[inline]
    pub async fn acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        permit!(SemaphorePermit, self.0.acquire_many(n).await, self, n)
    }

    #[inline]
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        permit!(OwnedSemaphorePermit, self.0.acquire().await, self, 1)
    }

    #[inline]
    pub async fn acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        permit!(OwnedSemaphorePermit, self.0.acquire_many(n).await, self, n)
    }

    #[track_caller]
    #[inline]
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        permit!(SemaphorePermit, self.0.blocking_acquire(), self, 1)
    }

    #[track_caller]
    #[inline]
    pub fn blocking_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        permit!(SemaphorePermit, self.0.blocking_acquire_many(n), self, n)
    }

    #[track_caller]
    #[inline]
    pub fn blocking_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        permit!(OwnedSemaphorePermit, self.0.blocking_acquire(), self, 1)
    }

    #[track_caller]
    #[inline]
    pub fn blocking_acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        permit!(
            OwnedSemaphorePermit,
            self.0.blocking_acquire_many(n),
            self,
            n
        )
    }

    #[inline]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        permit!(SemaphorePermit, self.0.try_acquire(), self, 1)
    }

    #[inline]
    pub fn try_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        permit!(SemaphorePermit, self.0.try_acquire_many(n), self, n)
    }

    #[inline]
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        permit!(OwnedSemaphorePermit, self.0.try_acquire(), self, 1)
    }

    #[inline]
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        permit!(OwnedSemaphorePermit, self.0.try_acquire_many(n), self, n)
    }

    forward! {
        fn available_permits(&self) -> usize;
        fn add_permits(&self, n: usize);
        fn forget_permits(&self, n: usize) -> usize;
        fn close(&self);
        fn is_closed(&self) -> bool;
    }
}

/// Implements the methods and the drop of a permit.
macro_rules! permits {
    ({$($lifetime:lifetime)?} $permit:ty, $semaphore:ty, |$this:ident| $get:expr) => {
        impl$(<$lifetime>)? $permit {
            #[inline]
            pub fn forget(mut self) {
                self.permits = 0;
            }

            #[track_caller]
            #[inline]
            pub fn merge(&mut self, mut other: Self) {
                assert!(
                    std::ptr::eq::<Semaphore>(&*self.semaphore, &*other.semaphore),
                    "merging permits from different semaphore instances"
                );
                self.permits += mem::take(&mut other.permits);
            }

            #[inline]
            pub fn split(&mut self, n: usize) -> Option<Self> {
                self.permits = self.permits.checked_sub(n)?;
                Some(Self { semaphore: self.semaphore.clone(), permits: n })
            }

            #[inline]
            pub fn semaphore(&self) -> &$semaphore {
                let $this = self;
                $get
            }

            #[inline]
            pub fn num_permits(&self) -> usize {
                self.permits
            }
        }

        impl$(<$lifetime>)? Drop for $permit {
            #[inline]
            fn drop(&mut self) {
                self.semaphore.add_permits(self.permits);
            }
        }
    };
}

permits!({'a} SemaphorePermit<'a>, Semaphore, |this| this.semaphore);
permits!({} OwnedSemaphorePermit, Arc<Semaphore>, |this| &this.semaphore);
