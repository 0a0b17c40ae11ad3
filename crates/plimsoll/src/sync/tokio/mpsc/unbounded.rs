//! Channels with room for any number of messages.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use super::error::{SendError, TryRecvError};
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

    /// As [`tokio::sync::mpsc::UnboundedSender::closed`].
    pub async fn closed(&self) {
        self.end.wait(self.inner.closed()).await;
    }

    /// As [`tokio::sync::mpsc::UnboundedSender::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// As [`tokio::sync::mpsc::UnboundedSender::same_channel`].
    pub fn same_channel(&self, other: &Self) -> bool {
        self.inner.same_channel(&other.inner)
    }

    /// As [`tokio::sync::mpsc::UnboundedSender::downgrade`].
    #[must_use = "the sender stays what it is"]
    pub fn downgrade(&self) -> WeakUnboundedSender<T> {
        WeakUnboundedSender {
            signals: self.end.0.clone(),
            inner: self.inner.downgrade(),
        }
    }

    /// As [`tokio::sync::mpsc::UnboundedSender::strong_count`].
    pub fn strong_count(&self) -> usize {
        self.inner.strong_count()
    }

    /// As [`tokio::sync::mpsc::UnboundedSender::weak_count`].
    pub fn weak_count(&self) -> usize {
        self.inner.weak_count()
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self {
            end: self.end.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> WeakUnboundedSender<T> {
    /// As [`tokio::sync::mpsc::WeakUnboundedSender::upgrade`].
    pub fn upgrade(&self) -> Option<UnboundedSender<T>> {
        let inner = self.inner.upgrade()?;
        Some(UnboundedSender {
            end: SendingEnd(self.signals.clone()),
            inner,
        })
    }

    /// As [`tokio::sync::mpsc::WeakUnboundedSender::strong_count`].
    pub fn strong_count(&self) -> usize {
        self.inner.strong_count()
    }

    /// As [`tokio::sync::mpsc::WeakUnboundedSender::weak_count`].
    pub fn weak_count(&self) -> usize {
        self.inner.weak_count()
    }
}

impl<T> Clone for WeakUnboundedSender<T> {
    fn clone(&self) -> Self {
        Self {
            signals: self.signals.clone(),
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for WeakUnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> UnboundedReceiver<T> {
    /// As [`tokio::sync::mpsc::UnboundedReceiver::recv`].
    pub async fn recv(&mut self) -> Option<T> {
        let inner = &mut self.inner;
        self.end.wait(|context| inner.poll_recv(context)).await
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::recv_many`].
    pub async fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
        let inner = &mut self.inner;
        self.end
            .wait(|context| inner.poll_recv_many(context, buffer, limit))
            .await
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::try_recv`].
    ///
    /// # Errors
    /// If there is nothing to receive.
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.end.receives();
        self.inner.try_recv()
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::blocking_recv`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_recv(&mut self) -> Option<T> {
        let wait = self.end.wait_blocking();
        let received = self.inner.blocking_recv();
        wait.end();
        received
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::blocking_recv_many`].
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
        let wait = self.end.wait_blocking();
        let received = self.inner.blocking_recv_many(buffer, limit);
        wait.end();
        received
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::close`].
    pub fn close(&mut self) {
        self.end.receives();
        self.inner.close();
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::len`].
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::poll_recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.end.receives();
        self.inner.poll_recv(context)
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::poll_recv_many`].
    pub fn poll_recv_many(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut Vec<T>,
        limit: usize,
    ) -> Poll<usize> {
        self.end.receives();
        self.inner.poll_recv_many(context, buffer, limit)
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::sender_strong_count`].
    pub fn sender_strong_count(&self) -> usize {
        self.inner.sender_strong_count()
    }

    /// As [`tokio::sync::mpsc::UnboundedReceiver::sender_weak_count`].
    pub fn sender_weak_count(&self) -> usize {
        self.inner.sender_weak_count()
    }
}

impl<T> fmt::Debug for UnboundedReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
