//! Channels: [`tokio::sync::mpsc`], whose waits are in the block profile.
//!
//! A receiver has waited until something was last sent before it went on, a sender of a bounded
//! channel until something was last received. Nobody is blamed. What is polled by methods called
//! `poll_...` is not seen to wait, for those have no end that is told.

mod both;
mod bounded;
mod unbounded;

pub use bounded::{OwnedPermit, Permit, PermitIterator, Receiver, Sender, WeakSender, channel};
pub use unbounded::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};

pub use tokio::sync::mpsc::error;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::waiting::{ThreadWait, Waiting};
use crate::contention::WaitKind;
use crate::contention::awaited::Signal;

/// What the two ends of a channel tell one another.
struct Signals {
    /// There may be something to receive, or nobody left to send it.
    sent: Signal,
    /// There may be room to send something, or nobody left to receive it.
    received: Signal,
}

/// The end of who sends. Declared before tokio's, so that the signal comes first: the last sender's
/// going wakes the receiver.
#[derive(Clone)]
struct SendingEnd(Arc<Signals>);

/// The end of who receives. Declared before tokio's, as above: the receiver's going wakes senders.
struct ReceivingEnd(Arc<Signals>);

fn ends() -> (SendingEnd, ReceivingEnd) {
    let signals = Arc::new(Signals {
        sent: Signal::new(None),
        received: Signal::new(None),
    });
    (SendingEnd(signals.clone()), ReceivingEnd(signals))
}

impl Signals {
    /// Room is given back, which wakes senders, or, if nobody else is there, the receiver.
    fn give_back(&self) {
        self.received.give();
        self.sent.give();
    }
}

impl SendingEnd {
    #[inline]
    fn sends(&self) {
        self.0.sent.give();
    }

    /// Waits for room, or for the receiver to go.
    #[inline]
    fn wait<F: Future>(&self, future: F) -> Waiting<&Signal, F> {
        Waiting::new(WaitKind::Channel, &self.0.received, future)
    }

    #[inline]
    fn wait_blocking(&self) -> ThreadWait<&Signal> {
        ThreadWait::begin(WaitKind::Channel, &self.0.received)
    }
}

impl Drop for SendingEnd {
    #[inline]
    fn drop(&mut self) {
        self.sends();
    }
}

impl ReceivingEnd {
    /// Something is about to be received, if it is there.
    #[inline]
    fn receives(&self) {
        self.0.received.give();
    }

    /// Waits for something to receive with a method of tokio's that polls for it.
    #[inline]
    fn wait<R, F>(&self, mut poll: F) -> Waiting<&Signal, impl Future<Output = R>>
    where
        F: FnMut(&mut Context<'_>) -> Poll<R>,
    {
        let received = poll_fn(move |context| {
            // To receive gives room, which wakes senders at once.
            self.receives();
            poll(context)
        });
        Waiting::new(WaitKind::Channel, &self.0.sent, received)
    }

    #[inline]
    fn wait_blocking(&self) -> ThreadWait<&Signal> {
        self.receives();
        ThreadWait::begin(WaitKind::Channel, &self.0.sent)
    }
}

impl Drop for ReceivingEnd {
    #[inline]
    fn drop(&mut self) {
        self.receives();
    }
}
