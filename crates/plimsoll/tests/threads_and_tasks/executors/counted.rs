//! A wrapper between an executor and its future that counts every call of the executor's waker.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Clone,
    Wake,
    WakeByRef,
    Drop,
}

type Hook = Arc<dyn Fn(Call, &Waker) + Send + Sync>;

/// Calls of each function of the waker.
#[derive(Default)]
pub struct Counts {
    clones: AtomicUsize,
    by_value: AtomicUsize,
    by_ref: AtomicUsize,
    drops: AtomicUsize,
    panics: AtomicUsize,
    /// Called during each call, with the executor's own waker.
    hook: Mutex<Option<Hook>>,
}

impl Counts {
    pub fn clones(&self) -> usize {
        self.clones.load(SeqCst)
    }

    /// Returns how many times the executor was woken.
    pub fn wakes(&self) -> usize {
        self.by_value.load(SeqCst) + self.by_ref.load(SeqCst)
    }

    /// Returns the number of live clones. Below zero, something was released twice.
    pub fn live(&self) -> isize {
        let gone = self.drops.load(SeqCst) + self.by_value.load(SeqCst);
        self.clones() as isize - gone as isize
    }

    pub fn panics(&self) -> usize {
        self.panics.load(SeqCst)
    }

    pub fn set_hook(&self, hook: Option<Hook>) {
        let before = std::mem::replace(&mut *self.hook.lock().unwrap(), hook);
        // Drops the hook outside of the lock, because the hook may own a waker.
        drop(before);
    }
}

/// The target of the counting wakers.
struct Node {
    executors: Waker,
    counts: Arc<Counts>,
}

impl Node {
    fn called(&self, call: Call) {
        let hook = self.counts.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(call, &self.executors);
        }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the data pointer of every waker of this file is a `Node`. The waker owns a share
        // of it or borrows it for one poll.
        let node = unsafe { &*data.cast::<Node>() };
        node.counts.clones.fetch_add(1, SeqCst);
        // SAFETY: the data pointer of every waker of this file is a `Node` that an `Arc` owns.
        unsafe { Arc::increment_strong_count(data.cast::<Node>()) };
        node.called(Call::Clone);
        RawWaker::new(data, &VTABLE)
    },
    |data| {
        // SAFETY: the data pointer is a `Node` that an `Arc` owns; the call consumes the waker's
        // share.
        let node = unsafe { Arc::from_raw(data.cast::<Node>()) };
        node.counts.by_value.fetch_add(1, SeqCst);
        node.called(Call::Wake);
        node.executors.wake_by_ref();
    },
    |data| {
        // SAFETY: the data pointer is a `Node`, of which the waker owns a share or borrows it for
        // one poll.
        let node = unsafe { &*data.cast::<Node>() };
        node.counts.by_ref.fetch_add(1, SeqCst);
        node.called(Call::WakeByRef);
        node.executors.wake_by_ref();
    },
    |data| {
        // SAFETY: the data pointer is a `Node` that an `Arc` owns; the call consumes the waker's
        // share.
        let node = unsafe { Arc::from_raw(data.cast::<Node>()) };
        node.counts.drops.fetch_add(1, SeqCst);
        node.called(Call::Drop);
    },
);

/// Polls a future with a counting waker, which stays the same while the executor's does. A panic
/// ends the future, as it does in most executors.
pub struct Counted<F> {
    future: Pin<Box<F>>,
    counts: Arc<Counts>,
    node: Option<Arc<Node>>,
}

impl<F> Counted<F> {
    pub fn new(future: F, counts: Arc<Counts>) -> Self {
        Self {
            future: Box::pin(future),
            counts,
            node: None,
        }
    }
}

impl<F: Future<Output = ()>> Future for Counted<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let node = match &mut this.node {
            Some(node) if node.executors.will_wake(context.waker()) => node,
            other => other.insert(Arc::new(Node {
                executors: context.waker().clone(),
                counts: this.counts.clone(),
            })),
        };
        let raw = RawWaker::new(Arc::as_ptr(node).cast(), &VTABLE);
        // SAFETY: the functions keep the contract of wakers; this waker is borrowed, and is never
        // dropped.
        let lent = ManuallyDrop::new(unsafe { Waker::from_raw(raw) });
        let mut context = Context::from_waker(&lent);
        let polled = catch_unwind(AssertUnwindSafe(|| this.future.as_mut().poll(&mut context)));
        polled.unwrap_or_else(|_| {
            this.counts.panics.fetch_add(1, SeqCst);
            Poll::Ready(())
        })
    }
}
