//! Telling tasks that something has happened.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::futures;

use super::waiting::Waiting;
use crate::contention::WaitKind;
use crate::contention::awaited::Signal;

/// [`tokio::sync::Notify`], whose waits are in the block profile.
///
/// A wait lasts until the last notification before the task goes on. Nobody is blamed for it.
pub struct Notify {
    notified: Signal,
    inner: tokio::sync::Notify,
}

/// [`tokio::sync::futures::Notified`] of such a [`Notify`].
#[must_use = "futures do nothing unless they are polled"]
pub struct Notified<'a> {
    waiting: Waiting<&'a Signal, futures::Notified<'a>>,
}

/// [`tokio::sync::futures::OwnedNotified`] of such a [`Notify`].
#[must_use = "futures do nothing unless they are polled"]
pub struct OwnedNotified {
    /// Has nothing of what it borrows once it is dropped, which is before that may be.
    notified: Notified<'static>,
    /// What is borrowed, which is never moved.
    _notify: Arc<Notify>,
}

impl Notify {
    /// Creates one without a notification.
    #[must_use]
    pub const fn new() -> Self {
        Self::create(None)
    }

    /// As [`tokio::sync::Notify::const_new`]: as [`Notify::new`].
    #[must_use]
    pub const fn const_new() -> Self {
        Self::create(None)
    }

    /// The same with a name.
    #[must_use]
    pub const fn named(name: &'static str) -> Self {
        Self::create(Some(name))
    }

    const fn create(name: Option<&'static str>) -> Self {
        Self {
            notified: Signal::new(name),
            inner: tokio::sync::Notify::const_new(),
        }
    }

    /// The name it was created with.
    pub const fn name(&self) -> Option<&'static str> {
        self.notified.given_name()
    }

    /// As [`tokio::sync::Notify::notified`].
    #[inline]
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            waiting: Waiting::new(WaitKind::Notify, &self.notified, self.inner.notified()),
        }
    }

    /// As [`tokio::sync::Notify::notified_owned`].
    #[inline]
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        // SAFETY: it lives as long as the future, which has a share of it, and drops it last.
        let notify: &'static Self = unsafe { &*Arc::as_ptr(&self) };
        OwnedNotified {
            notified: notify.notified(),
            _notify: self,
        }
    }

    /// As [`tokio::sync::Notify::notify_one`].
    #[inline]
    pub fn notify_one(&self) {
        self.notified.give();
        self.inner.notify_one();
    }

    /// As [`tokio::sync::Notify::notify_last`].
    #[inline]
    pub fn notify_last(&self) {
        self.notified.give();
        self.inner.notify_last();
    }

    /// As [`tokio::sync::Notify::notify_waiters`].
    #[inline]
    pub fn notify_waiters(&self) {
        self.notified.give();
        self.inner.notify_waiters();
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a> Notified<'a> {
    /// As [`tokio::sync::futures::Notified::enable`]. To be enabled is not to wait.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.waiting().with_future(futures::Notified::enable)
    }

    #[inline]
    fn waiting(self: Pin<&mut Self>) -> Pin<&mut Waiting<&'a Signal, futures::Notified<'a>>> {
        // SAFETY: it is pinned as `self` is: it is not moved, and this is all there is.
        unsafe { self.map_unchecked_mut(|this| &mut this.waiting) }
    }
}

impl Future for Notified<'_> {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.waiting().poll(context)
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").finish_non_exhaustive()
    }
}

impl OwnedNotified {
    /// As [`tokio::sync::futures::OwnedNotified::enable`].
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.notified().enable()
    }

    #[inline]
    fn notified(self: Pin<&mut Self>) -> Pin<&mut Notified<'static>> {
        // SAFETY: it is pinned as `self` is: it is not moved, and the other field does not matter.
        unsafe { self.map_unchecked_mut(|this| &mut this.notified) }
    }
}

impl Future for OwnedNotified {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.notified().poll(context)
    }
}

impl fmt::Debug for OwnedNotified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedNotified").finish_non_exhaustive()
    }
}
