//! How long tasks wait for a poll when they were woken, and how long polls take.
//!
//! That takes three readings of the clock for each wake and poll, so it is to be asked for. While
//! nobody does, a poll and a wake look at one byte each, in a cache line that nobody writes to.

use super::long_polls;
use super::slot::{Slot, WOKEN};
use crate::os::clock;
use crate::primitives::{AtomicU8, Ordering};
use crate::stats::TimeCounts;

/// What is wanted, in a cache line that nothing else is in.
static WANTED: Line = Line(AtomicU8::new(0));

#[repr(align(64))]
struct Line(AtomicU8);

/// The parts of [`WANTED`].
const HISTOGRAMS: u8 = 1;
const LONG_POLLS: u8 = 2;

/// From wakes to polls.
pub(crate) static WAKE_TO_POLL: TimeCounts = TimeCounts::new();
/// The lengths of polls.
pub(crate) static POLL_DURATION: TimeCounts = TimeCounts::new();

/// Whether anybody wants to know when polls begin.
#[inline]
pub(super) fn are_wanted() -> bool {
    WANTED.0.load(Ordering::Relaxed) != 0
}

/// Sets whether histograms are recorded, and returns whether they were.
pub(super) fn want_histograms(wanted: bool) -> bool {
    want(HISTOGRAMS, wanted)
}

/// Sets whether long polls are looked for.
pub(super) fn want_long_polls(wanted: bool) {
    want(LONG_POLLS, wanted);
}

fn want(what: u8, wanted: bool) -> bool {
    let before = if wanted {
        clock::prepare();
        WANTED.0.fetch_or(what, Ordering::Relaxed)
    } else {
        WANTED.0.fetch_and(!what, Ordering::Relaxed)
    };
    before & what != 0
}

/// A wake begins, see [`Slot::wake_begins`].
#[cold]
#[inline(never)]
pub(super) fn begin_wake(slot: &Slot) {
    if WANTED.0.load(Ordering::Relaxed) & HISTOGRAMS == 0 {
        slot.wake_begins();
    } else {
        slot.wake_begins_at(clock::now().max(WOKEN + 1));
    }
}

/// When a poll began, with what is done about it, in one word: 0 is for nothing.
#[derive(Clone, Copy)]
pub(super) struct Timed(u64);

/// The poll is in the histogram, because that was wanted when it began.
const COUNTED: u64 = 1 << 63;
/// It is watched, because it may become long.
const WATCHED: u64 = 1 << 62;

/// A poll is about to begin; `is_nested` says that it is part of another.
#[cold]
#[inline(never)]
pub(super) fn begin(slot: &Slot, is_nested: bool) -> Timed {
    let wanted = WANTED.0.load(Ordering::Relaxed);
    let began = clock::now();
    let mut timed = Timed(began);
    if wanted & HISTOGRAMS != 0 {
        timed.0 |= COUNTED;
        if let Some(woken) = slot.take_wake() {
            WAKE_TO_POLL.record(began.wrapping_sub(woken) as i64);
        }
    }
    if wanted & LONG_POLLS != 0 && long_polls::begin(slot, began, is_nested) {
        timed.0 |= WATCHED;
    }
    timed
}

impl Timed {
    pub(super) const NOT: Self = Self(0);

    /// The poll is about to end.
    #[inline]
    pub(super) fn end(self, slot: &Slot) {
        if self.0 != 0 {
            self.end_timed(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_timed(self, slot: &Slot) {
        let began = self.0 & !(COUNTED | WATCHED);
        let now = clock::now();
        let nanoseconds = now.wrapping_sub(began) as i64;
        if self.0 & COUNTED != 0 {
            // What was woken in the middle of a poll could not be polled before its end.
            slot.put_off_wake(now);
            POLL_DURATION.record(nanoseconds);
        }
        if self.0 & WATCHED != 0 {
            long_polls::end(slot, u64::try_from(nanoseconds).unwrap_or(0));
        }
    }
}
