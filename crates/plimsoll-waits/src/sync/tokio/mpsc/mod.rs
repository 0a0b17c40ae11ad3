//! Channels: [`tokio::sync::mpsc`], whose waits are in the block profile.
//!
//! The wait of a receiver lasts until the last message was sent before it continued. The wait of a
//! sender of a bounded channel lasts until the last message was received. No task is charged. Waits
//! in methods named `poll_...` are not recorded, since their end is not observable.

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

/// The signals between the two ends of a channel.
struct Signals {
    /// A message may be available, or all senders may be dropped.
    sent: Signal,
    /// Capacity may be available, or the receiver may be dropped.
    received: Signal,
}

/// The signals of a sender. Declared before tokio's sender, so that the signal comes first:
/// dropping the last sender wakes the receiver.
#[derive(Clone)]
struct SendingEnd(Arc<Signals>);

/// The signals of the receiver. Declared before tokio's receiver: dropping it wakes senders.
struct ReceivingEnd(Arc<Signals>);

fn ends() -> (SendingEnd, ReceivingEnd) {
    let signals = Arc::new(Signals {
        sent: Signal::new(None),
        received: Signal::new(None),
    });
    (SendingEnd(signals.clone()), ReceivingEnd(signals))
}

impl Signals {
    /// Signals returned capacity, which wakes senders, or, if none is left, the receiver.
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

    /// Waits for capacity, or for the end of the receiver.
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
    /// Signals that the receiver is about to receive a message, if one is available.
    #[inline]
    fn receives(&self) {
        self.0.received.give();
    }

    /// Waits for a message, by a polling method of tokio's receiver.
    #[inline]
    fn wait<R, F>(&self, mut poll: F) -> Waiting<&Signal, impl Future<Output = R>>
    where
        F: FnMut(&mut Context<'_>) -> Poll<R>,
    {
        let received = poll_fn(move |context| {
            // Receiving frees capacity, which wakes senders at once.
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
