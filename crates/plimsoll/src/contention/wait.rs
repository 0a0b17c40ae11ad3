//! A wait, from its beginning to its end; and a release.

use std::cell::Cell;

use super::record::What;
use super::waiters::Place;
use super::{WAITERS, WaitKind, clock, record};
use crate::stack::Start;

thread_local! {
    /// A key, and the nanoseconds that this thread has waited for it in waits that were not over.
    static CARRIED: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// A wait that is under way.
pub(crate) struct Wait {
    kind: WaitKind,
    key: usize,
    start: u64,
    place: Option<Place>,
    alias: Option<Place>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Somebody woke the thread.
    Woken,
    /// Its time was up.
    TimedOut,
    /// A signal came in between: the thread will go on waiting.
    #[cfg_attr(not(feature = "interpose"), allow(dead_code))]
    Interrupted,
    /// There was nothing to wait for.
    Refused,
    /// The thread has what it waited for. If nobody woke it, it was there for the taking by then,
    /// and was not waited for.
    Acquired,
    /// It is over, and who ended it was not to be seen: another process, a thread that died with
    /// what was waited for, one that cancelled the waiting thread.
    #[cfg_attr(not(feature = "pthread"), allow(dead_code))]
    Unseen,
}

impl Wait {
    /// The calling thread is about to wait for `key`, on `word`: the same, if the word is the
    /// lock's own.
    pub(crate) fn begin(kind: WaitKind, key: usize, word: usize) -> Self {
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

    /// The wait is over; the calling thread is at `stack`.
    #[cfg_attr(not(feature = "interpose"), allow(dead_code))]
    pub(crate) fn end(self, ended: Ended, stack: Start) {
        self.end_named(None, ended, stack);
    }

    /// The same, for what is called that.
    pub(crate) fn end_named(self, name: Option<&'static str>, ended: Ended, stack: Start) {
        let Self {
            kind, key, start, ..
        } = self;
        let what = What { kind, name };
        if let Some(alias) = self.alias {
            WAITERS.leave(alias);
        }
        let stamp = self.place.map(|place| WAITERS.leave(place));
        let now = clock::now();
        let until_now = now.saturating_sub(start);
        // 0 if nobody woke this thread since it began to wait.
        let until_stamp = stamp.map_or(0, |stamp| stamp.saturating_sub(start));
        let wakeup = until_now.saturating_sub(until_stamp);
        match ended {
            Ended::TimedOut => record::wait(what, until_now, 0, stack),
            Ended::Unseen if until_stamp == 0 || !kind.is_lock() => {
                record::wait(what, until_now, 0, stack);
            }
            // Whoever stamped was blamed for it: so it was waited, however the wait ended.
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

/// What a release is blamed for.
pub(crate) struct Release {
    kind: WaitKind,
    blamed_ns: u64,
}

/// The calling thread is about to wake threads that wait on `word`. What they wait for may be the
/// lock there, or one that a word of its own stands for, or, for readers-writer locks, the one that
/// `word` is the second word of, whose first is `first_word`. Returns what it is to blame for, to
/// be recorded when they are woken.
#[cfg(feature = "interpose")]
#[inline]
pub(crate) fn release(word: usize, first_word: usize) -> Option<Release> {
    if !WAITERS.any(word) && !WAITERS.any(first_word) {
        return None;
    }
    release_slowly(word, first_word)
}

/// The same where the key is known, and nobody waits for it by another name.
#[inline]
pub(crate) fn release_key(key: usize) -> Option<Release> {
    if WAITERS.any(key) {
        release_slowly(key, key)
    } else {
        None
    }
}

/// The same for a readers-writer lock that the calling thread has been reading. Only writers wait
/// for that: a reader that is still in the table was let in, and has not run since, or waits for a
/// writer that waits.
pub(crate) fn release_by_reader(key: usize) -> Option<Release> {
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

/// Whether anybody may be waiting for `key`.
#[cfg(feature = "pthread")]
#[inline]
pub(crate) fn is_waited_for(key: usize) -> bool {
    WAITERS.any(key)
}

fn release_slowly(word: usize, first_word: usize) -> Option<Release> {
    let mut blame = Blame(None);
    WAITERS.stamp(word, first_word, clock::now(), |kind, delay| {
        blame.add(kind, delay);
    });
    blame.0
}

/// What stamps of a release add up to.
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
    #[cfg(feature = "tokio")]
    pub(super) fn new(kind: WaitKind, blamed_ns: u64) -> Self {
        Self { kind, blamed_ns }
    }

    #[cfg(all(test, feature = "tokio"))]
    pub(super) fn into_parts(self) -> (WaitKind, u64) {
        (self.kind, self.blamed_ns)
    }

    /// The threads are woken; the calling thread is at `stack`.
    #[cfg(feature = "interpose")]
    pub(crate) fn record(self, stack: Start) {
        self.record_named(None, stack);
    }

    /// The same, of what is called that.
    pub(crate) fn record_named(self, name: Option<&'static str>, stack: Start) {
        let kind = self.kind;
        record::release(What { kind, name }, self.blamed_ns, stack);
    }
}
