//! A thread's poll, as somebody else can watch it.
//!
//! Two parties have a [`Watched`]: the *poller*, whose thread's it is, and the one *watcher* of the
//! process. All that matters is one word, `poll`: 0, or when the poll that is under way began, with
//! [`SEEN`] once the watcher has looked at it. The poller puts the beginning there and takes it
//! away, in one step each. The watcher reads the word, reads the thread's stack, and then marks the
//! word with a compare-and-swap: if that succeeds, it is the same poll, so the stack was read while
//! it ran. Two polls of a thread that are so long begin at different times.
//!
//! A poll that was seen is accounted for as it goes on: what the watcher has added of its time is
//! in `accounted`, and the poller adds the rest in the end. The watcher advances that word with a
//! compare-and-swap, and adds only what it has so made its own; the poller takes the word, once,
//! and the watcher's next attempt fails. So the time of a poll is added once, all of it, and nobody
//! waits.

use crate::primitives::{AtomicU32, AtomicU64, Ordering};

/// In a poll's word: it was looked at.
const SEEN: u64 = 1 << 63;

/// What `accounted` is when the poll is over: no length of time.
const OVER: u64 = u64::MAX;

/// The words of one thread: on no cache line of another's.
#[repr(align(64))]
pub(super) struct Watched {
    /// The system's number of the thread; 0 if this is nobody's.
    pub(super) thread: AtomicU32,
    /// The number of the task's slot.
    task: AtomicU32,
    poll: AtomicU64,
    /// Nanoseconds of the poll that were added to the bucket, if it was seen.
    accounted: AtomicU64,
    /// The bucket, if it was seen.
    bucket: AtomicU32,
}

/// A poll that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    word: u64,
    /// The number of the task's slot.
    pub(super) task: u32,
}

impl Running {
    /// When it began.
    pub(super) fn began(self) -> u64 {
        self.word & !SEEN
    }

    pub(super) fn was_seen(self) -> bool {
        self.word & SEEN != 0
    }
}

/// A poll that was seen, when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) bucket: u32,
    /// How many nanoseconds are in the bucket already.
    pub(super) accounted: u64,
}

impl Watched {
    pub(super) const FREE: u32 = 0;

    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            thread: AtomicU32::new(Self::FREE),
            task: AtomicU32::new(0),
            poll: AtomicU64::new(0),
            accounted: AtomicU64::new(0),
            bucket: AtomicU32::new(0),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            thread: AtomicU32::new(Self::FREE),
            task: AtomicU32::new(0),
            poll: AtomicU64::new(0),
            accounted: AtomicU64::new(0),
            bucket: AtomicU32::new(0),
        }
    }

    /// A poll begins, at that time, which is not 0. False if there is one already, which this one
    /// is part of. By the poller.
    pub(super) fn begin(&self, task: u32, at: u64) -> bool {
        if self.poll.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.task.store(task, Ordering::Relaxed);
        self.poll.store(at, Ordering::Release);
        true
    }

    /// The poll is over. By the poller.
    pub(super) fn end(&self) -> Option<Seen> {
        let word = self.poll.swap(0, Ordering::Acquire);
        (word & SEEN != 0).then(|| Seen {
            bucket: self.bucket.load(Ordering::Relaxed),
            accounted: self.accounted.swap(OVER, Ordering::Relaxed),
        })
    }

    /// The poll that is under way. By the watcher.
    pub(super) fn running(&self) -> Option<Running> {
        let word = self.poll.load(Ordering::Acquire);
        let task = self.task.load(Ordering::Relaxed);
        (word != 0).then_some(Running { word, task })
    }

    /// Marks a poll that was not seen before as seen, if it is still under way. The caller then
    /// adds that time to the bucket. By the watcher.
    pub(super) fn see(&self, running: Running, bucket: u32, nanoseconds: u64) -> bool {
        self.bucket.store(bucket, Ordering::Relaxed);
        self.accounted.store(nanoseconds, Ordering::Relaxed);
        let (word, seen) = (running.word, running.word | SEEN);
        self.poll
            .compare_exchange(word, seen, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// What the caller is to add to the bucket of a poll that was seen, for it to have had so much
    /// in all; 0 if it is over. By the watcher.
    pub(super) fn advance(&self, nanoseconds: u64) -> Option<(u32, u64)> {
        let before = self.accounted.load(Ordering::Relaxed);
        if before >= nanoseconds {
            return None;
        }
        self.accounted
            .compare_exchange(before, nanoseconds, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then(|| (self.bucket.load(Ordering::Relaxed), nanoseconds - before))
    }

    /// Nobody polls here any more.
    #[cfg(not(loom))]
    pub(super) fn clear(&self) {
        self.poll.store(0, Ordering::Relaxed);
        self.thread.store(Self::FREE, Ordering::Release);
    }
}
