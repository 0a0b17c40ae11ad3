//! Channels: [`std::sync::mpsc`], whose waits are in the block profile.
//!
//! The wait of a receiver lasts until the last message was sent before it continued. The wait of a
//! sender of a bounded channel lasts until the last message was received. No thread is charged.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::contended::{self, keeps_its_frame};
use crate::contention::{Ended, WaitKind};
use plimsoll_tasks::recording;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// Counterpart of [`std::sync::mpsc::Sender`].
pub struct Sender<T> {
    inner: mpsc::Sender<T>,
    key: Key,
}

/// Counterpart of [`std::sync::mpsc::SyncSender`].
pub struct SyncSender<T> {
    inner: mpsc::SyncSender<T>,
    key: Key,
}

/// Counterpart of [`std::sync::mpsc::Receiver`].
pub struct Receiver<T> {
    inner: mpsc::Receiver<T>,
    key: Key,
}

/// The key of a channel's waits, one number for both ends. Only one end can be waiting, unless a
/// waiter is about to be woken.
#[derive(Clone, Copy)]
struct Key(usize);

impl Key {
    /// Returns a new key. The address of the channel is private to the standard library, so it
    /// cannot be the key. Keys are in the upper half of the address space, where the program has no
    /// addresses.
    fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(64, Ordering::Relaxed);
        Self(!(usize::MAX >> 1) | number)
    }
}

/// Behaves like [`std::sync::mpsc::channel`].
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let key = Key::next();
    (
        Sender { inner: sender, key },
        Receiver {
            inner: receiver,
            key,
        },
    )
}

/// Behaves like [`std::sync::mpsc::sync_channel`].
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(bound);
    let key = Key::next();
    (
        SyncSender { inner: sender, key },
        Receiver {
            inner: receiver,
            key,
        },
    )
}

impl<T> Sender<T> {
    /// Behaves like [`std::sync::mpsc::Sender::send`].
    ///
    /// # Errors
    /// Fails if the receiver was dropped.
    #[inline]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        contended::wake(self.key.0, || self.inner.send(t))
    }
}

impl<T> SyncSender<T> {
    /// Behaves like [`std::sync::mpsc::SyncSender::send`].
    ///
    /// # Errors
    /// Fails if the receiver was dropped.
    #[inline]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        if !recording::is_on() {
            return self.inner.send(t);
        }
        let sent = self.send_recorded(t);
        keeps_its_frame();
        sent
    }

    /// Sends while waits are recorded.
    #[cold]
    #[inline(never)]
    fn send_recorded(&self, t: T) -> Result<(), SendError<T>> {
        match self.try_send(t) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(t)) => Err(SendError(t)),
            Err(TrySendError::Full(t)) => {
                let sent = contended::wait(
                    WaitKind::Channel,
                    self.key.0,
                    || self.inner.send(t),
                    |_| Ended::Woken,
                );
                keeps_its_frame();
                sent
            }
        }
    }

    /// Behaves like [`std::sync::mpsc::SyncSender::try_send`].
    ///
    /// # Errors
    /// Fails if the channel is full, or the receiver was dropped.
    #[inline]
    pub fn try_send(&self, t: T) -> Result<(), TrySendError<T>> {
        contended::wake(self.key.0, || self.inner.try_send(t))
    }
}

impl<T> Receiver<T> {
    /// Behaves like [`std::sync::mpsc::Receiver::recv`].
    ///
    /// # Errors
    /// Fails if no message is available, and all senders were dropped.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        if !recording::is_on() {
            return self.inner.recv();
        }
        let received = self.recv_recorded();
        keeps_its_frame();
        received
    }

    /// Receives while waits are recorded.
    #[cold]
    #[inline(never)]
    fn recv_recorded(&self) -> Result<T, RecvError> {
        match self.try_recv() {
            Ok(t) => Ok(t),
            Err(TryRecvError::Disconnected) => Err(RecvError),
            Err(TryRecvError::Empty) => {
                let received = contended::wait(
                    WaitKind::Channel,
                    self.key.0,
                    || self.inner.recv(),
                    |_| Ended::Woken,
                );
                keeps_its_frame();
                received
            }
        }
    }

    /// Behaves like [`std::sync::mpsc::Receiver::recv_timeout`].
    ///
    /// # Errors
    /// Fails if no message arrives within `timeout`, or all senders were dropped.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if !recording::is_on() {
            return self.inner.recv_timeout(timeout);
        }
        match self.try_recv() {
            Ok(t) => Ok(t),
            Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
            Err(TryRecvError::Empty) => {
                let received = contended::wait(
                    WaitKind::Channel,
                    self.key.0,
                    || self.inner.recv_timeout(timeout),
                    |received| match received {
                        Err(RecvTimeoutError::Timeout) => Ended::TimedOut,
                        _ => Ended::Woken,
                    },
                );
                keeps_its_frame();
                received
            }
        }
    }

    /// Behaves like [`std::sync::mpsc::Receiver::try_recv`].
    ///
    /// # Errors
    /// Fails if no message is available.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        contended::wake(self.key.0, || self.inner.try_recv())
    }

    /// Behaves like [`std::sync::mpsc::Receiver::iter`].
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Behaves like [`std::sync::mpsc::Receiver::try_iter`].
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }
}

/// The iterator of [`Receiver::iter`]: waits for each message, until all senders are dropped.
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// The iterator of [`Receiver::try_iter`]: yields the messages that are available.
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// An [`Iter`] that owns its receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            key: self.key,
        }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            key: self.key,
        }
    }
}

// The drop of an end's last handle wakes the waiters at the other end, so each drop stamps them
// first.

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        contended::wake(self.key.0, || {});
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        contended::wake(self.key.0, || {});
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        contended::wake(self.key.0, || {});
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
