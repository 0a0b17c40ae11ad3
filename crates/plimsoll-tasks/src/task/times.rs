//! The time that woken tasks wait for a poll, and the duration of polls.
//!
//! Recording takes three readings of the clock for each wake and poll, so it is off by default.
//! While it is off, a poll and a wake load one byte each, in a cache line that is never written.

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU8, Ordering};

use super::long_polls;
use super::slot::{Slot, WOKEN};
use plimsoll_core::histogram::TimeCounts;

/// The enabled measurements, alone in a cache line.
static WANTED: Line = Line(AtomicU8::new(0));

#[repr(align(64))]
struct Line(AtomicU8);

/// The parts of [`WANTED`].
const HISTOGRAMS: u8 = 1;
const LONG_POLLS: u8 = 2;

/// Times from wakes to polls.
pub static WAKE_TO_POLL: TimeCounts = TimeCounts::new();
/// Durations of polls.
pub static POLL_DURATION: TimeCounts = TimeCounts::new();

/// Returns whether the start of polls must be timed.
#[inline]
pub(super) fn are_wanted() -> bool {
    WANTED.0.load(Ordering::Relaxed) != 0
}

/// Sets whether histograms are recorded, and returns the previous setting.
pub(super) fn want_histograms(wanted: bool) -> bool {
    want(HISTOGRAMS, wanted)
}

/// Returns whether histograms are recorded.
pub(super) fn wants_histograms() -> bool {
    WANTED.0.load(Ordering::Relaxed) & HISTOGRAMS != 0
}

/// Sets whether long polls are detected.
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

/// Begins a wake: see [`Slot::wake_begins`].
#[cold]
#[inline(never)]
pub(super) fn begin_wake(slot: &Slot) {
    if WANTED.0.load(Ordering::Relaxed) & HISTOGRAMS == 0 {
        slot.wake_begins();
    } else {
        slot.wake_begins_at(clock::now().max(WOKEN + 1));
    }
}

/// The start of a poll and the measurements that apply to it, in one word; 0 for none.
#[derive(Clone, Copy)]
pub(super) struct Timed(u64);

/// The poll is in the histogram, which was enabled when it began.
const COUNTED: u64 = 1 << 63;
/// The poll is watched, because it may become long.
const WATCHED: u64 = 1 << 62;

/// Times a poll that is about to begin; `is_nested` is true if it is part of another.
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

    /// Records the poll, which is about to end.
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
            // A task that was woken in the middle of a poll could not be polled before its end.
            slot.put_off_wake(now);
            POLL_DURATION.record(nanoseconds);
        }
        if self.0 & WATCHED != 0 {
            long_polls::end(slot, u64::try_from(nanoseconds).unwrap_or(0));
        }
    }
}
