//! Channels: [`std::sync::mpsc`], whose waits are in the block profile.
//!
//! A receiver has waited until something was last sent before it went on, a sender of a bounded
//! channel until something was last received. Nobody is blamed.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::contended::{self, keeps_its_frame};
use crate::contention::{self, Ended, WaitKind};

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

/// [`std::sync::mpsc::Sender`], of such a channel.
pub struct Sender<T> {
    inner: mpsc::Sender<T>,
    key: Key,
}

/// [`std::sync::mpsc::SyncSender`], of such a channel.
pub struct SyncSender<T> {
    inner: mpsc::SyncSender<T>,
    key: Key,
}

/// [`std::sync::mpsc::Receiver`], of such a channel.
pub struct Receiver<T> {
    inner: mpsc::Receiver<T>,
    key: Key,
}

/// What is waited for: one number for both ends. Only one of them can be waiting, or else somebody
/// is about to be woken.
#[derive(Clone, Copy)]
struct Key(usize);

impl Key {
    /// The channel's memory is the standard library's secret, so its address cannot be the key.
    /// The upper half of the address space is the system's: no address of the program is there.
    fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(64, Ordering::Relaxed);
        Self(!(usize::MAX >> 1) | number)
    }
}

/// As [`std::sync::mpsc::channel`].
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

/// As [`std::sync::mpsc::sync_channel`].
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
    /// As [`std::sync::mpsc::Sender::send`].
    ///
    /// # Errors
    /// If there is no receiver any more.
    #[inline]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        contended::wake(self.key.0, || self.inner.send(t))
    }
}

impl<T> SyncSender<T> {
    /// As [`std::sync::mpsc::SyncSender::send`].
    ///
    /// # Errors
    /// If there is no receiver any more.
    #[inline]
    pub fn send(&self, t: T) -> Result<(), SendError<T>> {
        if !contention::is_on() {
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

    /// As [`std::sync::mpsc::SyncSender::try_send`].
    ///
    /// # Errors
    /// If the channel is full, or if there is no receiver any more.
    #[inline]
    pub fn try_send(&self, t: T) -> Result<(), TrySendError<T>> {
        contended::wake(self.key.0, || self.inner.try_send(t))
    }
}

impl<T> Receiver<T> {
    /// As [`std::sync::mpsc::Receiver::recv`].
    ///
    /// # Errors
    /// If there is nothing to receive, and no sender any more.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        if !contention::is_on() {
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

    /// As [`std::sync::mpsc::Receiver::recv_timeout`].
    ///
    /// # Errors
    /// If there is nothing to receive for so long, or no sender any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if !contention::is_on() {
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

    /// As [`std::sync::mpsc::Receiver::try_recv`].
    ///
    /// # Errors
    /// If there is nothing to receive.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        contended::wake(self.key.0, || self.inner.try_recv())
    }

    /// As [`std::sync::mpsc::Receiver::iter`].
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// As [`std::sync::mpsc::Receiver::try_iter`].
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }
}

/// What [`Receiver::iter`] returns: waits for each, until there is no sender any more.
#[derive(Debug)]
pub struct Iter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// What [`Receiver::try_iter`] returns: what is there to be received.
#[derive(Debug)]
pub struct TryIter<'a, T: 'a> {
    receiver: &'a Receiver<T>,
}

/// As [`Iter`], of a receiver of its own.
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

// The last of one end wakes who waits at the other, when it goes.

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
