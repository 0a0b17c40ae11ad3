//! The allocations and frees that the heap profile shows while there is a garbage collector.
//!
//! A collector finds dead objects late. A profile of all allocations up to now would show garbage
//! as in use until it is found. Go's solution, which this module adopts, has three slots of counts
//! for each bucket. It also has a number that increases at each mark termination, the *cycle* `C`:
//!
//! * allocations, and frees by the program, count to slot `C + 2`;
//! * frees by a sweep count to slot `C + 1`, because the objects were allocated before the mark
//!   termination;
//! * a mark termination makes `C + 1` the new `C`, and that slot is shown from then on.
//!
//! A profile thus shows the allocations up to a mark termination, less the objects that the
//! following sweep found dead. An object that dies in that sweep is never shown as in use. The end
//! of a forced cycle shows slot `C + 1` at once: it is complete when the sweep is.
//!
//! Without a collector, or before its first mark termination, readers advance the cycle themselves.
//! They show all slots except the one that is written to from then on: everything up to now.
//!
//! Counts to be shown are *folded*: added to a bucket's totals and removed from their slot. The
//! slot is then free for the cycle after the next. The cycle does not advance before that is done.
//! A mark termination does not advance the cycle while a reader folds, or during the sweep of
//! another collector. Its frees then count as the program's own, and are shown one cycle later. No
//! thread waits.
//!
//! # Why no bucket ever shows more frees than allocations
//! Slots are shown in the order of their cycles, and a free never counts to an earlier cycle than
//! its allocation. `C` does not fall. A sweep may free an object that was allocated after the mark
//! termination, such as an object of a finalizer. Plimsoll counts that free in the
//! allocation's slot.
//! For this purpose, each sampled block stores the cycle in which it was counted.

use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// Number of slots of each bucket.
pub const SLOTS: usize = 3;

/// Number of cycles before the numbers start again at 0: a multiple of [`SLOTS`].
const NUMBERS: u32 = 3 << 28;

/// The number of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CycleNumber(pub u32);

impl CycleNumber {
    fn plus(self, more: u32) -> Self {
        Self((self.0 + more) % NUMBERS)
    }

    /// Returns the slot of this cycle.
    fn slot(self) -> usize {
        self.0 as usize % SLOTS
    }
}

/// The cause of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// An allocation, or a free by the program.
    Program,
    /// A free in a sweep, of a block that was counted in the cycle `allocated`.
    Swept {
        /// That cycle.
        allocated: CycleNumber,
    },
}

/// The state at one instant: the cycle and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u64);

/// Complete slots are not folded yet, or not all of them.
const PENDING: u64 = 1 << 32;
/// The slot after the cycle's is complete as well.
const SWEPT: u64 = 1 << 33;
/// Mark terminations advance the cycle; readers do not.
const DEFERRED: u64 = 1 << 34;
/// The sweep of the *leader*, the collector that advanced the cycle last, is not over.
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

    /// Returns the slot to which an event counts.
    pub(super) fn slot(self, stream: Stream) -> usize {
        match stream {
            // Objects allocated since the mark termination count to the later slot.
            Stream::Swept { allocated } if self.has(LED) && allocated != self.cycle() => {
                self.cycle().plus(1).slot()
            }
            _ => self.cycle().plus(2).slot(),
        }
    }

    /// Returns the slots that are complete, if something is pending.
    pub(super) fn complete(self) -> &'static [usize] {
        const SLOT_PAIRS: [[usize; 2]; SLOTS] = [[0, 1], [1, 2], [2, 0]];
        let pair = &SLOT_PAIRS[self.cycle().slot()];
        &pair[..if self.has(SWEPT) { 2 } else { 1 }]
    }

    fn advanced(self, flags: u64) -> Self {
        Self(u64::from(self.cycle().plus(1).0) | flags | PENDING)
    }
}

/// The cycle of the heap profile. See the module documentation.
pub struct HeapCycle {
    state: AtomicU64,
    /// The collector's cycle whose mark termination advanced this one last; 0 if its sweep is over.
    leader: AtomicU64,
}

impl HeapCycle {
    #[cfg(not(loom))]
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            leader: AtomicU64::new(0),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
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

    /// Advances the cycle for a reader that found nothing pending and no collector. All slots are
    /// then complete, except the one that is written to from then on. Returns `None` if another
    /// thread was faster.
    pub(super) fn advance_for_reader(&self, from: State) -> Option<State> {
        let to = from.advanced(SWEPT);
        self.change(from, to).then_some(to)
    }

    /// Records that the complete slots of that state are folded. Returns false if more are complete
    /// by now.
    pub(super) fn folded(&self, state: State) -> bool {
        self.change(state, State(state.0 & !(PENDING | SWEPT)))
    }

    /// Handles a mark termination in the cycle `id` of a collector, which is not 0. If it advances
    /// the profile's cycle, the collector leads from now on, and the function returns true. It does
    /// not if something is pending or another collector leads.
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

    /// Reports whether `id` is the cycle whose sweep the next profile waits for.
    pub(super) fn is_led_by(&self, id: u64) -> bool {
        self.leader.load(Ordering::Acquire) == id
    }

    /// Handles the end of a collector's cycle. If the collector led and the cycle was `forced`, its
    /// frees are shown at once. Returns whether there are slots to be folded.
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

    /// Handles the end of the last collector: from now on, profiles show everything up to now.
    pub(super) fn detach(&self) {
        self.state.fetch_and(!(DEFERRED | LED), Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NOW: Stream = Stream::Program;

    fn swept(allocated: u32) -> Stream {
        Stream::Swept {
            allocated: CycleNumber(allocated),
        }
    }

    #[test]
    fn slots_rotate_and_the_written_one_is_never_complete() {
        let cycle = HeapCycle::new();
        for number in 0..12 {
            let state = cycle.state();
            assert_eq!(state.cycle(), CycleNumber(number));
            assert_eq!(state.slot(NOW), (number as usize + 2) % 3);
            assert!(cycle.terminate(7));
            let state = cycle.state();
            assert!(state.is_pending() && state.is_deferred());
            // This slot holds the frees of the sweep, of objects older than the previous mark
            // termination.
            assert_eq!(state.complete(), [(number as usize + 1) % 3]);
            assert!(!state.complete().contains(&state.slot(NOW)));
            assert!(!state.complete().contains(&state.slot(swept(number))));
            assert!(cycle.folded(state));
            cycle.end(7, false);
        }
    }

    #[test]
    fn a_sweep_frees_blocks_older_than_the_mark_termination_one_cycle_earlier() {
        let cycle = HeapCycle::new();
        assert_eq!(cycle.state().slot(swept(7)), 2, "no collector leads");
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
            "no collector leads any more"
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
