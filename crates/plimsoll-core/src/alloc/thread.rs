//! The state of counting and sampling for each thread, except for the fast path's, which is in
//! [`internal_scope`](crate::internal_scope).

use std::cell::Cell;

use plimsoll_sys::os;

use super::{counts::HEAP, measured, process};
use crate::internal_scope::{ALWAYS_SLOW, State};
use crate::sampler::{self, LastSample, Sample, Sampler, Weight};
use crate::stack;
use plimsoll_backend::backend;
use plimsoll_backend::backend::Backend;
use plimsoll_ledger::ledger::Writer;

/// The state that only the cold path uses.
struct Cold {
    stage: Cell<Stage>,
    writer: Cell<Writer>,
    /// The number of children by `vfork` that run on the thread, one in another.
    lent: Cell<u32>,
    /// How the thread counts when it is not lent; `None` if it is not, or was not set up before.
    own_writer: Cell<Option<Writer>>,
    sampler: Sampler,
    last_sample: LastSample,
    /// Whether the thread is enlisted with the backend of the process.
    noticed: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Never seen.
    New,
    /// Set up.
    Enlisted,
    /// Ending: its shard is released, and it counts in the shared shard.
    Departed,
}

thread_local! {
    static COLD: Cold = const {
        Cold {
            stage: Cell::new(Stage::New),
            writer: Cell::new(Writer::Shared),
            lent: Cell::new(0),
            own_writer: Cell::new(None),
            sampler: Sampler::new(),
            last_sample: LastSample::new(),
            noticed: Cell::new(false),
        }
    };
}

/// The calling thread on the cold path.
#[derive(Clone, Copy)]
pub struct Thread {
    state: State,
    cold: &'static Cold,
}

impl Thread {
    /// Returns the thread for an operation of the program; sets it up if this is its first.
    pub fn current() -> Self {
        let thread = Self::here();
        thread.enlist_if_new();
        thread
    }

    /// Returns the thread for an allocation of `size` bytes that left the fast path. Undoes the
    /// subtraction of the fast path before the set-up writes the countdown. So [`Thread::charge`]
    /// charges every allocation alike, including a thread's first one.
    pub fn allocating(size: usize) -> Self {
        let thread = Self::here();
        let before = if thread.state.is_fast() {
            thread.state.countdown.get().wrapping_add(size as i64)
        } else {
            ALWAYS_SLOW
        };
        thread.state.countdown.set(before);
        thread.enlist_if_new();
        thread
    }

    /// Returns the thread for an event that is not an operation of the allocator. Sets up the
    /// process, whose allocator may not be an `Alloc`, but not the thread. The thread's first
    /// operation must take the cold path, which enlists it with the allocator's backend.
    fn as_it_is() -> Self {
        let thread = Self::here();
        if thread.cold.stage.get() == Stage::New {
            process::open();
        }
        thread
    }

    /// Returns the thread as it is, for operations of a thread that has an area.
    pub(super) fn here() -> Self {
        // SAFETY: thread-local storage without destructors lasts as long as the thread, and a
        // `Thread` stays on its thread: it is not `Send`.
        let cold = unsafe { &*COLD.with(std::ptr::from_ref) };
        Self {
            state: State::current(),
            cold,
        }
    }

    fn enlist_if_new(self) {
        if self.cold.stage.get() == Stage::New {
            self.enlist();
        }
    }

    fn enlist(self) {
        let is_open = process::open();
        if !self.cold.sampler.has_started() {
            let distance = self.cold.sampler.start(os::random::seed(), sampler::rate());
            self.state.set_distance(distance);
        }
        if !is_open {
            // Another thread is setting up the process. Until then this thread counts in the shared
            // shard, and `LostEvents` counts its samples: the memory for samples may not exist yet.
            return;
        }
        let mut writer = HEAP.enlist();
        let has_shard = matches!(writer, Writer::Shard(_) | Writer::FencedShard(_));
        if has_shard && !process::at_thread_exit() {
            // The shard would not be released.
            HEAP.retire(writer);
            writer = Writer::Shared;
        }
        self.cold.writer.set(writer);
        self.cold.stage.set(Stage::Enlisted);
        self.set_route();
        process::note_thread();
    }

    /// Releases the thread's shard; from here on the thread counts in the shared one.
    pub(super) fn depart(self) {
        if self.cold.stage.get() != Stage::Enlisted {
            return;
        }
        let writer = self.cold.writer.replace(Writer::Shared);
        self.cold.stage.set(Stage::Departed);
        self.set_route();
        HEAP.retire(writer);
    }

    /// Opens the fast path of a thread that has a shard, unless the thread is measured; closes that of
    /// any other thread.
    pub(super) fn set_route(self) {
        let distance = self.state.distance();
        let of_thread = match self.cold.stage.get() == Stage::Enlisted {
            true => HEAP.area(self.cold.writer.get()),
            false => std::ptr::null_mut(),
        };
        let (area, measured_area) = match measured::is_active() {
            false => (of_thread, std::ptr::null_mut()),
            true => (std::ptr::null_mut(), of_thread),
        };
        let limit = match area.is_null() {
            true => usize::MAX,
            false => process::own_range_end(),
        };
        self.state.set_measured_area(measured_area);
        self.state.route.area.set(area);
        self.state.route.limit.set(limit);
        self.state.set_distance(distance);
    }

    /// Closes the fast path of the thread, which is measured from now on.
    pub(super) fn begin_measured(self) {
        self.state.begin_measured();
    }

    /// Opens the fast path of the thread, which is not measured any more.
    pub(super) fn end_measured(self) {
        self.state.end_measured(process::own_range_end());
    }

    /// Registers the backend with the process, and this thread with the backend, before the
    /// thread's first allocation.
    pub(super) fn notice(self, backend: &'static dyn Backend) {
        if !self.cold.noticed.get() && backend::notice(backend) {
            self.cold.noticed.set(true);
        }
    }

    /// Returns how this thread counts.
    #[inline]
    pub fn writer(self) -> Writer {
        self.cold.writer.get()
    }

    /// Returns whether the thread's allocations are Plimsoll's own.
    pub fn in_own_scope(self) -> bool {
        self.state.is_inside()
    }

    /// Returns whether an allocation of Plimsoll's own goes to the inner allocator and is not counted.
    pub fn is_uncounted(self) -> bool {
        self.state.is_uncounted()
    }

    /// Charges an allocation of `size` bytes to the distance and decides whether it is sampled.
    /// [`Thread::allocating`] has undone the subtraction of the fast path.
    pub fn charge(self, size: usize) -> Option<Weight> {
        let before = self.state.distance();
        let left = before.saturating_sub(i64::try_from(size).unwrap_or(i64::MAX));
        if left >= 0 {
            self.state.set_distance(left);
            return None;
        }
        let decision = self.cold.sampler.decide(before, size, sampler::rate());
        self.state.set_distance(decision.countdown);
        self.cold.last_sample.forget();
        if self.cold.stage.get() == Stage::New && decision.weight.is_some() {
            stack::TABLE.drop_event();
            return None;
        }
        decision.weight
    }

    /// Draws a new distance at the current rate, so that this thread does not have to use up its
    /// old one.
    fn redraw(self) {
        let before = self.state.distance();
        let decision = self.cold.sampler.decide(before, 0, sampler::rate());
        self.state.set_distance(decision.countdown);
        let last_sample = &self.cold.last_sample;
        last_sample.redrawn(before, decision.countdown);
    }

    /// Notes the block of a recorded sample of this thread, which has charged the allocation.
    pub(super) fn note_sample(self, block: *mut u8, sample: Sample) {
        let last_sample = &self.cold.last_sample;
        last_sample.note(block, sample, self.state.distance());
    }

    /// Returns whether the sampled block is temporary, if this thread frees it now: the thread itself
    /// allocated it, and nothing since.
    pub(super) fn is_temporary(self, block: *mut u8, sample: Sample) -> bool {
        let last_sample = &self.cold.last_sample;
        last_sample.is_temporary(block, sample, self.state.distance())
    }
}

/// Makes this thread adopt a new rate immediately. Not for hooks.
pub fn take_up_rate() {
    let thread = Thread::as_it_is();
    if thread.cold.stage.get() != Stage::New {
        thread.redraw();
    }
}

/// Draws the distance of the calling thread anew, from another seed. In the child of a fork: children
/// that continued with the parent's would all sample the same of their allocations, so the errors of
/// their profiles would add up instead of cancelling.
pub fn draw_anew() {
    let thread = Thread::here();
    if thread.cold.sampler.has_started() {
        let distance = thread
            .cold
            .sampler
            .start(os::random::seed(), sampler::rate());
        thread.state.set_distance(distance);
        thread.cold.last_sample.forget();
    }
}

/// Lends the calling thread to a child by `vfork`. For the child the kernel does not serve restartable sequences, so it
/// counts in the shared shard. For hooks.
#[cfg_attr(
    not(feature = "interpose"),
    allow(dead_code, reason = "`vfork` is not seen")
)]
pub fn lend() {
    let thread = Thread::current();
    let cold = thread.cold;
    if cold.lent.get() == 0 && cold.stage.get() == Stage::Enlisted {
        cold.own_writer
            .set(Some(cold.writer.replace(Writer::Shared)));
        thread.set_route();
    }
    cold.lent.set(cold.lent.get() + 1);
}

/// Ends [`lend`], in the parent.
#[cfg_attr(
    not(feature = "interpose"),
    allow(dead_code, reason = "`vfork` is not seen")
)]
pub fn take_back() {
    let thread = Thread::here();
    let cold = thread.cold;
    cold.lent.set(cold.lent.get().saturating_sub(1));
    if cold.lent.get() == 0 {
        if let Some(own) = cold.own_writer.take() {
            cold.writer.set(own);
            thread.set_route();
        }
    }
}

/// Returns whether the calling code runs in the child of a `vfork`, or is about to make one.
pub fn is_lent() -> bool {
    Thread::here().cold.lent.get() != 0
}

/// Returns how the calling thread counts.
pub fn writer() -> Writer {
    Thread::as_it_is().writer()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a thread that stays new while another thread sets up the process.
    #[test]
    fn samples_of_a_thread_that_is_not_set_up_are_counted_as_lost() {
        let thread = Thread {
            state: State::of_new_thread(),
            cold: Box::leak(Box::new(Cold {
                stage: Cell::new(Stage::New),
                writer: Cell::new(Writer::Shared),
                lent: Cell::new(0),
                own_writer: Cell::new(None),
                sampler: Sampler::new(),
                last_sample: LastSample::new(),
                noticed: Cell::new(false),
            })),
        };
        let distance = thread.cold.sampler.start(7, 1);
        thread.state.set_distance(distance);
        let before = stack::TABLE.overflowed();
        for _ in 0..10 {
            assert_eq!(thread.charge(isize::MAX as usize), None);
            assert_eq!(thread.state.countdown.get(), ALWAYS_SLOW);
        }
        assert!(stack::TABLE.overflowed() >= before + 10);
    }
}
