//! Channels for one message: [`tokio::sync::oneshot`], whose waits are in the block profile.
//!
//! The wait of a receiver lasts until the message was sent. It begins at the first poll, and ends
//! when the receiver is ready or dropped. No task is charged.

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
use plimsoll_tasks::recording;
use plimsoll_tasks::task::lock_owners;

/// Counterpart of [`tokio::sync::oneshot::Sender`].
#[derive(Debug)]
pub struct Sender<T> {
    inner: oneshot::Sender<Message<T>>,
}

/// Counterpart of [`tokio::sync::oneshot::Receiver`].
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

/// Behaves like [`tokio::sync::oneshot::channel`].
#[inline]
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    // Called first, so that no value has to be kept across the call.
    let creator = if recording::notes_owners() {
        lock_owners::polled_task()
    } else {
        0
    };
    let (sender, receiver) = oneshot::channel();
    let wait = TaskWait::for_message(WaitKind::Channel, SentAt::UNKNOWN, creator);
    (
        Sender { inner: sender },
        Receiver {
            wait,
            inner: receiver,
        },
    )
}

impl<T> Sender<T> {
    /// Behaves like [`tokio::sync::oneshot::Sender::send`].
    ///
    /// # Errors
    /// Fails if the channel is closed.
    #[inline]
    pub fn send(self, t: T) -> Result<(), T> {
        let message = Message {
            content: t,
            sent: SentAt::now(),
        };
        self.inner.send(message).map_err(|message| message.content)
    }

    /// Behaves like [`tokio::sync::oneshot::Sender::closed`].
    pub async fn closed(&mut self) {
        let closed = self.inner.closed();
        Waiting::new(WaitKind::Channel, SentAt::UNKNOWN, closed).await;
    }

    /// Behaves like [`tokio::sync::oneshot::Sender::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Behaves like [`tokio::sync::oneshot::Sender::poll_closed`].
    pub fn poll_closed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_closed(context)
    }
}

impl<T> Receiver<T> {
    /// Behaves like [`tokio::sync::oneshot::Receiver::close`].
    pub fn close(&mut self) {
        self.inner.close();
    }

    /// Behaves like [`tokio::sync::oneshot::Receiver::is_terminated`].
    pub fn is_terminated(&self) -> bool {
        self.inner.is_terminated()
    }

    /// Behaves like [`tokio::sync::oneshot::Receiver::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Behaves like [`tokio::sync::oneshot::Receiver::try_recv`].
    ///
    /// # Errors
    /// Fails if no message is available.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let message = self.inner.try_recv()?;
        *self.wait.awaited() = message.sent;
        self.wait.arrived();
        Ok(message.content)
    }

    /// Behaves like [`tokio::sync::oneshot::Receiver::blocking_recv`].
    ///
    /// # Errors
    /// Fails if the sender was dropped without sending.
    ///
    /// # Panics
    /// Panics if the thread executes tasks.
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
