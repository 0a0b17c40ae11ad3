//! Channels with a limited capacity.

use std::fmt;
use std::mem;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::super::waiting::at_once;
use super::both::{receiver, sender};
use super::error::{SendError, TrySendError};
use super::{ReceivingEnd, SendingEnd, Signals, ends};

/// Counterpart of [`tokio::sync::mpsc::Sender`].
///
/// `send_timeout`, which tokio has only with the feature `time`, is missing. Use the following
/// instead; a time limit around `send` would lose the value.
///
/// ```
/// # use std::time::Duration;
/// # use plimsoll::sync::tokio::mpsc;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let (sender, _receiver) = mpsc::channel(1);
/// # let (value, limit) = (1, Duration::from_secs(1));
/// match tokio::time::timeout(limit, sender.reserve()).await {
///     Ok(Ok(permit)) => permit.send(value),
///     Ok(Err(_)) => panic!("no receiver for {value}"),
///     Err(_) => panic!("the time is up for {value}"),
/// }
/// # });
/// ```
pub struct Sender<T> {
    end: SendingEnd,
    inner: mpsc::Sender<T>,
}

/// Counterpart of [`tokio::sync::mpsc::WeakSender`].
pub struct WeakSender<T> {
    signals: Arc<Signals>,
    inner: mpsc::WeakSender<T>,
}

/// Counterpart of [`tokio::sync::mpsc::Receiver`].
pub struct Receiver<T> {
    end: ReceivingEnd,
    inner: mpsc::Receiver<T>,
}

/// Counterpart of [`tokio::sync::mpsc::Permit`].
pub struct Permit<'a, T> {
    room: Reserved<'a>,
    inner: mpsc::Permit<'a, T>,
}

/// Counterpart of [`tokio::sync::mpsc::PermitIterator`].
pub struct PermitIterator<'a, T> {
    room: Reserved<'a>,
    inner: mpsc::PermitIterator<'a, T>,
}

/// Counterpart of [`tokio::sync::mpsc::OwnedPermit`].
pub struct OwnedPermit<T> {
    /// Present until the permit is used.
    parts: Option<(SendingEnd, mpsc::OwnedPermit<T>)>,
}

/// A guard of reserved capacity, which signals its return when it is dropped. Declared before
/// tokio's permit, so that the signal comes first.
struct Reserved<'a>(&'a Signals);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Behaves like [`tokio::sync::mpsc::channel`].
///
/// # Panics
/// Panics if `buffer` is 0, or more than tokio's maximum number of permits.
#[must_use]
#[track_caller]
pub fn channel<T>(buffer: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel(buffer);
    let (sending, receiving) = ends();
    (
        Sender {
            end: sending,
            inner: sender,
        },
        Receiver {
            end: receiving,
            inner: receiver,
        },
    )
}

sender!(Sender, WeakSender);
receiver!(Receiver);

impl<T> Sender<T> {
    /// Behaves like [`tokio::sync::mpsc::Sender::send`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut permit = None;
        let is_room = at_once(|| {
            permit = self.inner.try_reserve().ok();
            permit.is_some()
        });
        is_room.await;
        let permit = match permit {
            Some(permit) => permit,
            None => match self.end.wait(self.inner.reserve()).await {
                Ok(permit) => permit,
                Err(SendError(())) => return Err(SendError(value)),
            },
        };
        self.end.sends();
        permit.send(value);
        Ok(())
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::try_send`].
    ///
    /// # Errors
    /// Fails if the channel is full or closed.
    #[inline]
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.end.sends();
        self.inner.try_send(message)
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::blocking_send`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
    #[track_caller]
    pub fn blocking_send(&self, value: T) -> Result<(), SendError<T>> {
        self.end.sends();
        let wait = self.end.wait_blocking();
        let sent = self.inner.blocking_send(value);
        wait.end();
        sent
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::reserve`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        let inner = self.end.wait(self.inner.reserve()).await?;
        Ok(self.permit(inner))
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::reserve_many`].
    ///
    /// # Errors
    /// Fails if the channel is closed, or `n` exceeds its maximum capacity.
    pub async fn reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, SendError<()>> {
        let inner = self.end.wait(self.inner.reserve_many(n)).await?;
        Ok(self.permits(inner))
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::reserve_owned`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    pub async fn reserve_owned(self) -> Result<OwnedPermit<T>, SendError<()>> {
        let Self { end, inner } = self;
        let inner = end.wait(inner.reserve_owned()).await?;
        Ok(OwnedPermit::new(end, inner))
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::try_reserve`].
    ///
    /// # Errors
    /// Fails if the channel is full or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, TrySendError<()>> {
        let inner = self.inner.try_reserve()?;
        Ok(self.permit(inner))
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::try_reserve_many`].
    ///
    /// # Errors
    /// Fails if the channel has less free capacity than `n`, or is closed.
    pub fn try_reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, TrySendError<()>> {
        let inner = self.inner.try_reserve_many(n)?;
        Ok(self.permits(inner))
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::try_reserve_owned`].
    ///
    /// # Errors
    /// Fails if the channel is full or closed.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, TrySendError<Self>> {
        let Self { end, inner } = self;
        match inner.try_reserve_owned() {
            Ok(inner) => Ok(OwnedPermit::new(end, inner)),
            Err(TrySendError::Full(inner)) => Err(TrySendError::Full(Self { end, inner })),
            Err(TrySendError::Closed(inner)) => Err(TrySendError::Closed(Self { end, inner })),
        }
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::capacity`].
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Behaves like [`tokio::sync::mpsc::Sender::max_capacity`].
    pub fn max_capacity(&self) -> usize {
        self.inner.max_capacity()
    }

    fn permit<'a>(&'a self, inner: mpsc::Permit<'a, T>) -> Permit<'a, T> {
        Permit {
            room: Reserved(&self.end.0),
            inner,
        }
    }

    fn permits<'a>(&'a self, inner: mpsc::PermitIterator<'a, T>) -> PermitIterator<'a, T> {
        PermitIterator {
            room: Reserved(&self.end.0),
            inner,
        }
    }
}

impl<T> Receiver<T> {
    /// Behaves like [`tokio::sync::mpsc::Receiver::capacity`].
    pub fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    /// Behaves like [`tokio::sync::mpsc::Receiver::max_capacity`].
    pub fn max_capacity(&self) -> usize {
        self.inner.max_capacity()
    }
}

impl<T> Permit<'_, T> {
    /// Behaves like [`tokio::sync::mpsc::Permit::send`].
    pub fn send(self, value: T) {
        let Self { room, inner } = self;
        room.0.sent.give();
        mem::forget(room);
        inner.send(value);
    }
}

impl<T> fmt::Debug for Permit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T> Iterator for PermitIterator<'a, T> {
    type Item = Permit<'a, T>;

    fn next(&mut self) -> Option<Permit<'a, T>> {
        let inner = self.inner.next()?;
        Some(Permit {
            room: Reserved(self.room.0),
            inner,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<T> ExactSizeIterator for PermitIterator<'_, T> {}

impl<T> std::iter::FusedIterator for PermitIterator<'_, T> {}

impl<T> fmt::Debug for PermitIterator<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> OwnedPermit<T> {
    fn new(end: SendingEnd, inner: mpsc::OwnedPermit<T>) -> Self {
        Self {
            parts: Some((end, inner)),
        }
    }

    fn inner(&self) -> Option<&mpsc::OwnedPermit<T>> {
        self.parts.as_ref().map(|(_, inner)| inner)
    }

    /// Behaves like [`tokio::sync::mpsc::OwnedPermit::send`].
    pub fn send(mut self, value: T) -> Sender<T> {
        let (end, inner) = self.parts.take().expect(UNUSED);
        end.sends();
        Sender {
            end,
            inner: inner.send(value),
        }
    }

    /// Behaves like [`tokio::sync::mpsc::OwnedPermit::release`].
    pub fn release(mut self) -> Sender<T> {
        let (end, inner) = self.parts.take().expect(UNUSED);
        end.0.give_back();
        Sender {
            end,
            inner: inner.release(),
        }
    }

    /// Behaves like [`tokio::sync::mpsc::OwnedPermit::same_channel`].
    pub fn same_channel(&self, other: &Self) -> bool {
        let both = self.inner().zip(other.inner());
        both.is_some_and(|(this, other)| this.same_channel(other))
    }

    /// Behaves like [`tokio::sync::mpsc::OwnedPermit::same_channel_as_sender`].
    pub fn same_channel_as_sender(&self, sender: &Sender<T>) -> bool {
        let inner = self.inner();
        inner.is_some_and(|inner| inner.same_channel_as_sender(&sender.inner))
    }
}

/// The message for a second use, which cannot occur: each use consumes the permit.
const UNUSED: &str = "it is used once";

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        if let Some((end, _)) = &self.parts {
            end.0.give_back();
        }
    }
}

impl<T> fmt::Debug for OwnedPermit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner() {
            Some(inner) => inner.fmt(f),
            None => f.write_str("OwnedPermit"),
        }
    }
}
