//! Channels with room for any number of messages.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::both::{receiver, sender};
use super::error::SendError;
use super::{ReceivingEnd, SendingEnd, Signals, ends};

/// [`tokio::sync::mpsc::UnboundedSender`] of such a channel.
pub struct UnboundedSender<T> {
    end: SendingEnd,
    inner: mpsc::UnboundedSender<T>,
}

/// [`tokio::sync::mpsc::WeakUnboundedSender`] of such a channel.
pub struct WeakUnboundedSender<T> {
    signals: Arc<Signals>,
    inner: mpsc::WeakUnboundedSender<T>,
}

/// [`tokio::sync::mpsc::UnboundedReceiver`] of such a channel.
pub struct UnboundedReceiver<T> {
    end: ReceivingEnd,
    inner: mpsc::UnboundedReceiver<T>,
}

/// As [`tokio::sync::mpsc::unbounded_channel`].
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
    /// As [`tokio::sync::mpsc::UnboundedSender::send`].
    ///
    /// # Errors
    /// If there is no receiver any more.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.end.sends();
        self.inner.send(message)
    }
}
