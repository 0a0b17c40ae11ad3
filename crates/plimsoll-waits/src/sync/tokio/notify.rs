//! Notifications of tasks.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::futures;

use super::waiting::Waiting;
use crate::contention::WaitKind;
use crate::contention::awaited::Signal;

/// A [`tokio::sync::Notify`] whose waits are in the block profile.
///
/// A wait lasts until the last notification before the task continues. No task is charged for it.
pub struct Notify {
    notified: Signal,
    inner: tokio::sync::Notify,
}

/// Counterpart of [`tokio::sync::futures::Notified`].
#[must_use = "futures do nothing unless they are polled"]
pub struct Notified<'a> {
    waiting: Waiting<&'a Signal, futures::Notified<'a>>,
}

/// Counterpart of [`tokio::sync::futures::OwnedNotified`].
#[must_use = "futures do nothing unless they are polled"]
pub struct OwnedNotified {
    /// Dropped before `_notify`, from which it borrows: fields are dropped in their order.
    notified: Notified<'static>,
    /// The borrowed [`Notify`], which is never moved.
    _notify: Arc<Notify>,
}

impl Notify {
    /// Creates a `Notify` without a notification.
    #[must_use]
    pub const fn new() -> Self {
        Self::create(None)
    }

    /// Same as [`Notify::new`]; counterpart of [`tokio::sync::Notify::const_new`].
    #[must_use]
    pub const fn const_new() -> Self {
        Self::create(None)
    }

    /// Creates a `Notify` with a name.
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

    /// Returns the name, if one was given at creation.
    pub const fn name(&self) -> Option<&'static str> {
        self.notified.given_name()
    }

    /// Behaves like [`tokio::sync::Notify::notified`].
    #[inline]
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            waiting: Waiting::new(WaitKind::Notify, &self.notified, self.inner.notified()),
        }
    }

    /// Behaves like [`tokio::sync::Notify::notified_owned`].
    #[inline]
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        // SAFETY: the future owns a share of the `Arc`, and drops it after `notified`, so the
        // reference is valid during all of its uses.
        let notify: &'static Self = unsafe { &*Arc::as_ptr(&self) };
        OwnedNotified {
            notified: notify.notified(),
            _notify: self,
        }
    }

    /// Behaves like [`tokio::sync::Notify::notify_one`].
    #[inline]
    pub fn notify_one(&self) {
        self.notified.give();
        self.inner.notify_one();
    }

    /// Behaves like [`tokio::sync::Notify::notify_last`].
    #[inline]
    pub fn notify_last(&self) {
        self.notified.give();
        self.inner.notify_last();
    }

    /// Behaves like [`tokio::sync::Notify::notify_waiters`].
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
    /// Behaves like [`tokio::sync::futures::Notified::enable`]. Enabling a future begins no wait.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.waiting().with_future(futures::Notified::enable)
    }

    #[inline]
    fn waiting(self: Pin<&mut Self>) -> Pin<&mut Waiting<&'a Signal, futures::Notified<'a>>> {
        // SAFETY: `waiting` is the only field, is pinned whenever `self` is, and is never moved.
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
    /// Behaves like [`tokio::sync::futures::OwnedNotified::enable`].
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.notified().enable()
    }

    #[inline]
    fn notified(self: Pin<&mut Self>) -> Pin<&mut Notified<'static>> {
        // SAFETY: `notified` is pinned whenever `self` is, and is never moved; the other field is
        // never pinned.
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
