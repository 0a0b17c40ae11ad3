//! One wait, from its beginning to its end; and a release.

use std::cell::Cell;

use plimsoll_sys::os::clock;

use super::record::EventInfo;
use super::waiters::WaiterSlot;
use super::{WAITERS, WaitKind, record};
use plimsoll_core::stack::Start;

thread_local! {
    /// A key, and the nanoseconds for which this thread has waited on it in waits that are not
    /// over.
    static CARRIED: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// A wait in progress.
pub struct Wait {
    kind: WaitKind,
    key: usize,
    start: u64,
    place: Option<WaiterSlot>,
    alias: Option<WaiterSlot>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another thread woke this one.
    Woken,
    /// The time limit of the wait was reached.
    TimedOut,
    /// A signal interrupted the wait; the thread will wait again.
    Interrupted,
    /// The call did not wait, for instance because the word had changed.
    Refused,
    /// The thread got what it waited for. If no other thread woke it, the lock was free by then,
    /// and there was no wait.
    Acquired,
    /// The wait is over, but its end was not observed. Another process ended it, or a thread that
    /// died while it held the lock, or a thread that cancelled the waiting one.
    Unseen,
}

impl Wait {
    /// Begins a wait of the calling thread for `key`, on `word`. The two are equal if the thread
    /// waits on the lock's own word.
    pub fn begin(kind: WaitKind, key: usize, word: usize) -> Self {
        let carried = match CARRIED.get() {
            (of, waited) if of == key => {
                CARRIED.set((0, 0));
                waited
            }
            _ => 0,
        };
        let start = clock::now().saturating_sub(carried).max(1);
        Self {
            kind,
            key,
            start,
            place: WAITERS.enter(key, kind, start),
            alias: if word == key {
                None
            } else {
                WAITERS.enter_alias(word, key)
            },
        }
    }

    /// Ends the wait, and records it; the calling thread is at `stack`.
    pub fn end(self, ended: Ended, stack: Start) {
        self.end_named(None, ended, stack);
    }

    /// Same as [`end`](Self::end), for a lock that may have a name.
    pub fn end_named(self, name: Option<&'static str>, ended: Ended, stack: Start) {
        let Self {
            kind, key, start, ..
        } = self;
        let what = EventInfo { kind, name };
        if let Some(alias) = self.alias {
            WAITERS.leave(alias);
        }
        let stamp = self.place.map(|place| WAITERS.leave(place));
        let now = clock::now();
        let until_now = now.saturating_sub(start);
        // 0 if no thread has woken this one since it began to wait.
        let until_stamp = stamp.map_or(0, |stamp| stamp.saturating_sub(start));
        let wakeup = until_now.saturating_sub(until_stamp);
        match ended {
            Ended::TimedOut => record::wait(what, until_now, 0, stack),
            Ended::Unseen if until_stamp == 0 || !kind.is_lock() => {
                record::wait(what, until_now, 0, stack);
            }
            // The stamp charged its thread for this time, so it is recorded as a wait, however it
            // ended.
            _ if until_stamp > 0
                && (kind.is_lock() || matches!(ended, Ended::Woken | Ended::Acquired)) =>
            {
                record::wait(what, until_stamp, wakeup, stack);
            }
            Ended::Woken if !kind.is_lock() || self.place.is_none() => {
                record::wait(what, until_now, 0, stack);
            }
            Ended::Refused if !kind.is_lock() => {}
            Ended::Acquired if self.place.is_none() => {
                record::wait(what, until_now, 0, stack);
            }
            Ended::Acquired => {}
            Ended::Unseen | Ended::Woken | Ended::Interrupted | Ended::Refused => {
                CARRIED.set((key, until_now))
            }
        }
    }
}

/// The charge of a release.
pub struct Release {
    kind: WaitKind,
    blamed_ns: u64,
}

/// Charges the calling thread, which is about to wake threads that wait on `word`. They may wait
/// for the lock at `word`, or for a lock elsewhere whose waiters wait on `word`. For a
/// readers-writer lock, `word` may be the second word, and `first_word` the first. Returns the
/// charge, to be recorded when the threads are woken.
#[inline]
pub fn release(word: usize, first_word: usize) -> Option<Release> {
    if !WAITERS.any(word) && !WAITERS.any(first_word) {
        return None;
    }
    release_cold(word, first_word)
}

/// Same as `release`, if the key is known and no thread waits under another key.
#[inline]
pub fn release_key(key: usize) -> Option<Release> {
    if WAITERS.any(key) {
        release_cold(key, key)
    } else {
        None
    }
}

/// Same as [`release_key`], for a readers-writer lock that the calling thread has been reading.
/// Only writers wait for such a release. A reader in the table either has the lock and has not run
/// since, or waits for a writer that itself waits.
pub fn release_by_reader(key: usize) -> Option<Release> {
    if !WAITERS.any(key) {
        return None;
    }
    let mut blame = Blame(None);
    let now = clock::now();
    WAITERS.stamp_kind(key, WaitKind::RwLockWrite, now, |kind, delay| {
        blame.add(kind, delay);
    });
    blame.0
}

/// Returns whether a thread may be waiting for `key`.
#[inline]
pub fn is_waited_for(key: usize) -> bool {
    WAITERS.any(key)
}

fn release_cold(word: usize, first_word: usize) -> Option<Release> {
    let mut blame = Blame(None);
    WAITERS.stamp(word, first_word, clock::now(), |kind, delay| {
        blame.add(kind, delay);
    });
    blame.0
}

/// The sum of the stamps of a release.
struct Blame(Option<Release>);

impl Blame {
    fn add(&mut self, kind: WaitKind, delay: u64) {
        if kind.is_lock() {
            let release = self.0.get_or_insert(Release { kind, blamed_ns: 0 });
            release.blamed_ns += delay;
        }
    }
}

impl Release {
    pub(super) fn new(kind: WaitKind, blamed_ns: u64) -> Self {
        Self { kind, blamed_ns }
    }

    #[cfg(test)]
    pub(super) fn into_parts(self) -> (WaitKind, u64) {
        (self.kind, self.blamed_ns)
    }

    /// Records the release; its waiters are woken, and the calling thread is at `stack`.
    pub fn record(self, stack: Start) {
        self.record_named(None, stack);
    }

    /// Same as `record`, for a lock that may have a name.
    pub fn record_named(self, name: Option<&'static str>, stack: Start) {
        let kind = self.kind;
        record::release(EventInfo { kind, name }, self.blamed_ns, stack);
    }
}
