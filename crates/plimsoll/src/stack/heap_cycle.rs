//! Which allocations and frees the heap profile shows, while there is a garbage collector.
//!
//! A collector finds out late that an object is dead: a profile of what was allocated up to now
//! would show, as in use, garbage that was not looked for yet. Go's answer, which this is, has
//! three slots of counts for each bucket, and a number that goes up at each mark termination, the
//! *cycle* `C`:
//!
//! * what is allocated, and what is freed by the program, counts to slot `C + 2`;
//! * what a sweep frees counts to `C + 1`, for it was allocated before the mark termination;
//! * a mark termination makes `C + 1` the new `C`, and that slot is shown from then on.
//!
//! So a profile shows what had been allocated at a mark termination, less what the sweep after it
//! found dead: an object that dies in that sweep is never shown as one in use. The end of a forced
//! cycle shows slot `C + 1` at once: it is complete when the sweep is.
//!
//! Without a collector, or before the first mark termination of one, readers advance the cycle
//! themselves, and show all but the slot that is written to then: everything up to now.
//!
//! What is shown is *folded*: added to a bucket's totals, and taken out of its slot, which is then
//! free for the cycle after the next. The cycle does not advance before that is done. A mark
//! termination that finds a reader in the midst of it does not advance the cycle, and nor does one
//! during the sweep of another collector: its frees then count as the program's own, and are shown
//! one cycle later. Nobody waits.
//!
//! # Why no bucket ever shows more frees than allocations
//! Slots are shown in the order of their cycles, and a free never counts to an earlier one than the
//! allocation did: `C` does not fall, and a free in a sweep which would (of an object that was made
//! since the mark termination, by a finalizer, say) counts to the allocation's slot. For that,
//! each sampled block has the cycle noted that it was counted in.

use crate::primitives::{AtomicU64, Ordering};

/// Slots for each bucket.
pub(crate) const SLOTS: usize = 3;

/// Cycles are numbered up to this, and then anew: a multiple of [`SLOTS`].
const NUMBERS: u32 = 3 << 28;

/// The number of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct CycleNumber(pub(crate) u32);

impl CycleNumber {
    fn plus(self, more: u32) -> Self {
        Self((self.0 + more) % NUMBERS)
    }

    /// The slot of this cycle.
    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// How a free came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// An allocation, or a free by the program.
    Program,
    /// A free in a sweep, of a block that was counted in that cycle.
    Swept { allocated: CycleNumber },
}

/// What there is to know at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

/// The slot of the cycle was not folded yet, or not all of what is complete.
const PENDING: u64 = 1 << 32;
/// The slot after it is complete as well.
const SWEPT: u64 = 1 << 33;
/// Mark terminations advance the cycle, not readers.
const DEFERRED: u64 = 1 << 34;
/// The cycle of the collector that advanced it is not over: the *leader's*.
const LED: u64 = 1 << 35;

impl State {
    pub(super) fn cycle(self) -> CycleNumber {
        CycleNumber(self.0 as u32)
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn is_pending(self) -> bool {
        self.has(PENDING)
    }

    pub(super) fn is_deferred(self) -> bool {
        self.has(DEFERRED)
    }

    /// Where an event counts.
    pub(super) fn slot(self, stream: Stream) -> usize {
        match stream {
            // What the program makes since the mark termination counts no earlier than that.
            Stream::Swept { allocated } if self.has(LED) && allocated != self.cycle() => {
                self.cycle().plus(1).slot()
            }
            _ => self.cycle().plus(2).slot(),
        }
    }

    /// The slots that are complete, if something is pending.
    pub(super) fn complete(self) -> &'static [usize] {
        const SLOT_PAIRS: [[usize; 2]; SLOTS] = [[0, 1], [1, 2], [2, 0]];
        let pair = &SLOT_PAIRS[self.cycle().slot()];
        &pair[..if self.has(SWEPT) { 2 } else { 1 }]
    }

    fn advanced(self, flags: u64) -> Self {
        Self(u64::from(self.cycle().plus(1).0) | flags | PENDING)
    }
}

/// See the module documentation.
pub(crate) struct HeapCycle {
    state: AtomicU64,
    /// Whose mark termination advanced the cycle last; 0 if its sweep is over.
    leader: AtomicU64,
}

impl HeapCycle {
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            leader: AtomicU64::new(0),
        }
    }

    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    fn change(&self, from: State, to: State) -> bool {
        let state = &self.state;
        let change = state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed);
        change.is_ok()
    }

    /// Advances, for a reader that has found nothing pending and no collector. All slots but the
    /// one that is written to from then on are complete. `None` if somebody else was quicker.
    pub(super) fn advance_for_reader(&self, from: State) -> Option<State> {
        let to = from.advanced(SWEPT);
        self.change(from, to).then_some(to)
    }

    /// Notes that what was complete in that state is folded. False if there is more by now.
    pub(super) fn folded(&self, state: State) -> bool {
        self.change(state, State(state.0 & !(PENDING | SWEPT)))
    }

    /// A mark termination in the cycle `id` of a collector, which is not 0. It leads from now on if
    /// that advances the profile's cycle; not if something is pending, or somebody else leads.
    pub(super) fn terminate(&self, id: u64) -> bool {
        loop {
            let state = self.state();
            if state.has(PENDING | LED) {
                return false;
            }
            if self.change(state, state.advanced(DEFERRED | LED)) {
                self.leader.store(id, Ordering::Release);
                return true;
            }
        }
    }

    /// Whether that is the cycle whose sweep the next profile waits for.
    pub(super) fn is_led_by(&self, id: u64) -> bool {
        self.leader.load(Ordering::Acquire) == id
    }

    /// The end of a collector's cycle. If it led, and was `forced`, what it freed is shown at once.
    /// Returns whether there is something to be folded.
    pub(super) fn end(&self, id: u64, forced: bool) -> bool {
        if !self.is_led_by(id) {
            return false;
        }
        self.leader.store(0, Ordering::Release);
        loop {
            let state = self.state();
            if !state.has(LED) {
                return false;
            }
            let complete = if forced { SWEPT | PENDING } else { 0 };
            if self.change(state, State(state.0 & !LED | complete)) {
                return forced;
            }
        }
    }

    /// The last collector has gone: from now on, profiles show everything up to now.
    pub(super) fn detach(&self) {
        self.state.fetch_and(!(DEFERRED | LED), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stream = Stream::Program;

    fn swept(allocated: u32) -> Stream {
        Stream::Swept {
            allocated: CycleNumber(allocated),
        }
    }

    #[test]
    fn slots_go_round_and_what_is_written_is_never_complete() {
        let cycle = HeapCycle::new();
        for number in 0..12 {
            let state = cycle.state();
            assert_eq!(state.cycle(), CycleNumber(number));
            assert_eq!(state.slot(NOW), (number as usize + 2) % 3);
            assert!(cycle.terminate(7));
            let state = cycle.state();
            assert!(state.is_pending() && state.is_deferred());
            // What was allocated before the one before, and swept since.
            assert_eq!(state.complete(), [(number as usize + 1) % 3]);
            assert!(!state.complete().contains(&state.slot(NOW)));
            assert!(!state.complete().contains(&state.slot(swept(number))));
            assert!(cycle.folded(state));
            cycle.end(7, false);
        }
    }

    #[test]
    fn a_sweep_frees_one_cycle_earlier_what_is_older_than_the_mark_termination() {
        let cycle = HeapCycle::new();
        assert_eq!(cycle.state().slot(swept(7)), 2, "nobody leads");
        assert!(cycle.terminate(1));
        let state = cycle.state();
        assert_eq!(state.slot(NOW), 0);
        assert_eq!((state.slot(swept(0)), state.slot(swept(1))), (2, 0));
        assert!(cycle.end(1, true));
        let state = cycle.state();
        assert_eq!(state.complete(), [1, 2], "a forced cycle is complete");
        assert_eq!(state.slot(swept(0)), 0, "the sweep is over");
    }

    #[test]
    fn only_one_leads_and_only_when_nothing_is_pending() {
        let cycle = HeapCycle::new();
        assert!(cycle.terminate(1));
        assert!(!cycle.terminate(2), "pending");
        assert!(cycle.folded(cycle.state()));
        assert!(!cycle.terminate(2), "the other one sweeps");
        assert!(!cycle.end(2, true));
        assert!(cycle.is_led_by(1) && !cycle.is_led_by(2));
        assert!(!cycle.end(1, false));
        assert!(cycle.terminate(2));
    }

    #[test]
    fn without_collectors_readers_advance() {
        let cycle = HeapCycle::new();
        let advanced = cycle.advance_for_reader(cycle.state()).unwrap();
        assert_eq!(advanced.complete(), [1, 2]);
        assert!(!advanced.is_deferred() && !cycle.terminate(1));
        assert!(cycle.folded(advanced));
        assert!(cycle.terminate(1));
        cycle.detach();
        let state = cycle.state();
        assert!(!state.is_deferred() && state.is_pending());
        assert_eq!(
            state.slot(swept(0)),
            state.slot(NOW),
            "nobody leads any more"
        );
        assert!(!cycle.end(1, true));
    }

    #[test]
    fn numbers_begin_anew_without_a_slot_left_out() {
        let last = CycleNumber(NUMBERS - 1);
        assert_eq!(
            (last.slot(), last.plus(1).slot(), last.plus(2).slot()),
            (2, 0, 1)
        );
    }
}
