//! Channels for one message: [`tokio::sync::oneshot`], whose waits are in
//! the block profile.
//!
//! A receiver has waited until the message was sent. Its wait begins when it is first polled, and
//! ends when it has an answer or is dropped. Nobody is blamed.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

pub use tokio::sync::oneshot::error;

use super::waiting::{TaskWait, ThreadWait, Waiting};
use crate::contention::WaitKind;
use crate::contention::awaited::SentAt;
use crate::sync::contended::keeps_its_frame;
use error::{RecvError, TryRecvError};

/// [`tokio::sync::oneshot::Sender`] of such a channel.
#[derive(Debug)]
pub struct Sender<T> {
    inner: oneshot::Sender<Message<T>>,
}

/// [`tokio::sync::oneshot::Receiver`] of such a channel.
#[must_use = "futures do nothing unless they are polled"]
pub struct Receiver<T> {
    wait: TaskWait<SentAt>,
    inner: oneshot::Receiver<Message<T>>,
}

#[derive(Debug)]
struct Message<T> {
    content: T,
    sent: SentAt,
}

/// As [`tokio::sync::oneshot::channel`].
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (
        Sender { inner: sender },
        Receiver {
            wait: TaskWait::new(WaitKind::Channel, SentAt::UNKNOWN),
            inner: receiver,
        },
    )
}

impl<T> Sender<T> {
    /// As [`tokio::sync::oneshot::Sender::send`].
    ///
    /// # Errors
    /// If there is no receiver any more.
    #[inline]
    pub fn send(self, t: T) -> Result<(), T> {
        let message = Message {
            content: t,
            sent: SentAt::now(),
        };
        self.inner.send(message).map_err(|message| message.content)
    }

    /// As [`tokio::sync::oneshot::Sender::closed`].
    pub async fn closed(&mut self) {
        let closed = self.inner.closed();
        Waiting::new(WaitKind::Channel, SentAt::UNKNOWN, closed).await;
    }

    /// As [`tokio::sync::oneshot::Sender::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// As [`tokio::sync::oneshot::Sender::poll_closed`].
    pub fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_closed(context)
    }
}

impl<T> Receiver<T> {
    /// As [`tokio::sync::oneshot::Receiver::close`].
    pub fn close(&mut self) {
        self.inner.close();
    }

    /// As [`tokio::sync::oneshot::Receiver::is_terminated`].
    pub fn is_terminated(&self) -> bool {
        self.inner.is_terminated()
    }

    /// As [`tokio::sync::oneshot::Receiver::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// As [`tokio::sync::oneshot::Receiver::try_recv`].
    ///
    /// # Errors
    /// If there is nothing to receive.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let message = self.inner.try_recv()?;
        *self.wait.awaited() = message.sent;
        self.wait.arrived();
        Ok(message.content)
    }

    /// As [`tokio::sync::oneshot::Receiver::blocking_recv`].
    ///
    /// # Errors
    /// If there is no sender any more.
    ///
    /// # Panics
    /// If the thread executes tasks.
    #[track_caller]
    pub fn blocking_recv(self) -> Result<T, RecvError> {
        let mut wait = ThreadWait::begin(WaitKind::Channel, SentAt::UNKNOWN);
        let received = self.inner.blocking_recv();
        if let Ok(message) = &received {
            *wait.awaited() = message.sent;
        }
        wait.end();
        received.map(|message| message.content)
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.inner).poll(context);
        if let Poll::Ready(Ok(message)) = &polled {
            *self.wait.awaited() = message.sent;
        }
        self.wait.polled(polled.is_ready(), context);
        keeps_its_frame();
        polled.map_ok(|message| message.content)
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
