//! Channels with an unlimited capacity.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::both::{receiver, sender};
use super::error::SendError;
use super::{ReceivingEnd, SendingEnd, Signals, ends};

/// Counterpart of [`tokio::sync::mpsc::UnboundedSender`].
pub struct UnboundedSender<T> {
    end: SendingEnd,
    inner: mpsc::UnboundedSender<T>,
}

/// Counterpart of [`tokio::sync::mpsc::WeakUnboundedSender`].
pub struct WeakUnboundedSender<T> {
    signals: Arc<Signals>,
    inner: mpsc::WeakUnboundedSender<T>,
}

/// Counterpart of [`tokio::sync::mpsc::UnboundedReceiver`].
pub struct UnboundedReceiver<T> {
    end: ReceivingEnd,
    inner: mpsc::UnboundedReceiver<T>,
}

/// Behaves like [`tokio::sync::mpsc::unbounded_channel`].
#[must_use]
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (sending, receiving) = ends();
    (
        UnboundedSender {
            end: sending,
            inner: sender,
        },
        UnboundedReceiver {
            end: receiving,
            inner: receiver,
        },
    )
}

sender!(UnboundedSender, WeakUnboundedSender);
receiver!(UnboundedReceiver);

impl<T> UnboundedSender<T> {
    /// Behaves like [`tokio::sync::mpsc::UnboundedSender::send`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.end.sends();
        self.inner.send(message)
    }
}
