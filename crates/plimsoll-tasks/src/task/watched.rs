//! A thread's poll, observable by another thread.
//!
//! Two parties share a [`Watched`]: the *poller*, the thread to which it belongs, and the one
//! *watcher* of the process. The essential state is one word, `poll`. It is 0, or the time at which
//! the current poll began, with [`SEEN`] once the watcher has recorded the poll. The poller sets
//! and clears it, in one step each. The watcher reads the word, reads the thread's stack, and then
//! marks the word with a compare-and-swap. If that succeeds, the poll is the same, so the stack was
//! read while it ran: two such long polls of a thread begin at different times.
//!
//! The time of a seen poll is accounted for as it runs. `accounted` is the time that the watcher
//! has added; the poller adds the rest at the end. The watcher advances that word with a
//! compare-and-swap, and adds only the part by which it advanced. The poller takes the word, once,
//! and the watcher's next attempt fails. So the whole time of a poll is added exactly once, and no
//! thread waits.

use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

/// A flag in a poll's word: the watcher has recorded the poll.
const SEEN: u64 = 1 << 63;

/// The value of `accounted` after the end of the poll, which is not a duration.
const OVER: u64 = u64::MAX;

/// The words of one thread, in a separate cache line.
#[repr(align(64))]
pub(super) struct Watched {
    /// The thread's ID in the system; 0 if the entry is free.
    pub(super) thread: AtomicU32,
    /// The number of the task's slot.
    task: AtomicU32,
    poll: AtomicU64,
    /// Nanoseconds of the poll that were added to the bucket, if the poll was seen.
    accounted: AtomicU64,
    /// The bucket, if the poll was seen.
    bucket: AtomicU32,
}

/// A poll in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    word: u64,
    /// The number of the task's slot.
    pub(super) task: u32,
}

impl Running {
    /// Returns the start of the poll.
    pub(super) fn began(self) -> u64 {
        self.word & !SEEN
    }

    pub(super) fn was_seen(self) -> bool {
        self.word & SEEN != 0
    }
}

/// A poll that was seen and has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) bucket: u32,
    /// The nanoseconds that are in the bucket already.
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

    /// Begins a poll at a time other than 0. Returns false if it is part of a poll in progress.
    /// Called by the poller.
    pub(super) fn begin(&self, task: u32, at: u64) -> bool {
        if self.poll.load(Ordering::Relaxed) != 0 {
            return false;
        }
        self.task.store(task, Ordering::Relaxed);
        self.poll.store(at, Ordering::Release);
        true
    }

    /// Ends the poll. Called by the poller.
    pub(super) fn end(&self) -> Option<Seen> {
        let word = self.poll.swap(0, Ordering::Acquire);
        (word & SEEN != 0).then(|| Seen {
            bucket: self.bucket.load(Ordering::Relaxed),
            accounted: self.accounted.swap(OVER, Ordering::Relaxed),
        })
    }

    /// Returns the poll in progress. Called by the watcher.
    pub(super) fn running(&self) -> Option<Running> {
        let word = self.poll.load(Ordering::Acquire);
        let task = self.task.load(Ordering::Relaxed);
        (word != 0).then_some(Running { word, task })
    }

    /// Marks an unseen poll as seen, if it is still in progress. The caller then adds that time to
    /// the bucket. Called by the watcher.
    pub(super) fn see(&self, running: Running, bucket: u32, nanoseconds: u64) -> bool {
        self.bucket.store(bucket, Ordering::Relaxed);
        self.accounted.store(nanoseconds, Ordering::Relaxed);
        let (word, seen) = (running.word, running.word | SEEN);
        self.poll
            .compare_exchange(word, seen, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Advances the accounted time of a seen poll. Returns its bucket and the time that the caller
    /// must add; `None` if the poll is over or has that much already. Called by the watcher.
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

    /// Frees the entry, in which no thread polls any more.
    #[cfg(not(loom))]
    pub(super) fn clear(&self) {
        self.poll.store(0, Ordering::Relaxed);
        self.thread.store(Self::FREE, Ordering::Release);
    }
}
