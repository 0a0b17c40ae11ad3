//! The state of one task, in a slot, and the protocol by which it changes.
//!
//! Slots are never freed, only reused, so a pointer to one is always valid. All fields but one are
//! atomic. Three parties write to a slot:
//!
//! * the *poller*, one at a time: `polls` is odd during a poll, which shows a reader that the
//!   other fields may be changing;
//! * a *waker* of the task, or a clone or drop of a registration: only `control` and `woken`;
//! * the *reader* of a [cut](super::snapshot): only `seen`.
//!
//! A slot is released once both the future and the last registration are dropped.
//!
//! # The executor's waker
//! The waker that a task passes on points to its slot. Each clone of it is a registration. While
//! registrations exist, the slot holds one clone of the executor's waker, `inner`; otherwise it
//! holds none. The poller makes the first registration during a poll, from the waker that the
//! executor lends for the poll. Only then is `inner` written.
//!
//! # Forgotten tasks
//! A task without registrations that was not woken since its last poll began will never be polled
//! again. Each wake is noted twice: in `woken` before the executor is notified, and in the count of
//! wakes afterwards, no later than the release of the wake's registration. A poll clears `woken`
//! and remembers the count when it begins. So a wake that reaches the executor after a poll began
//! shows in one of the two, even if the wake began earlier.

pub(super) mod control;
mod registrations;
mod seen;

use std::panic::Location;
use std::ptr;
use std::task::Waker;

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use super::inner::Inner;
use super::slab::SLAB;
use super::snapshot::CUTS;
use plimsoll_core::stack::StackName;

use control::Control;
pub use seen::{Seen, State};

/// The number of stacks that are kept of the places where a task waits.
pub const STACKS: usize = 4;

/// A slot: see the module documentation.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Counts and flags. No other code than [`control`] knows their bits.
    pub(super) control: Control,
    /// The lower half is the [epoch](super::snapshot) in which the task was last recorded, or
    /// created. The upper half counts the tasks that have used the slot.
    pub(super) seen: AtomicU64,
    /// The time of the first wake since the last poll began, or [`WOKEN`]; 0 if there was none.
    woken: AtomicU64,
    /// Twice the number of polls, plus 1 during a poll.
    polls: AtomicU32,
    /// The number of completed wakes when the last poll began.
    wakes_before: AtomicU32,
    /// The end of the last poll, or the creation of the task.
    since: AtomicU64,
    /// The waker that the executor lends for the current poll.
    lent: AtomicUsize,
    /// The clone of the executor's waker.
    inner: Inner,

    stacks: [AtomicU32; STACKS],
    id: AtomicU64,
    parent: AtomicU64,
    /// A `TypeName`.
    type_name: AtomicUsize,
    /// A `&'static Location<'static>`.
    location: AtomicUsize,
    /// The thread that polls the task.
    poller: AtomicU32,
    labels: AtomicU16,
    name: AtomicU16,
    /// In an auxiliary slot, the number of its task's slot. In a free slot, one more than the
    /// number of the next free slot. In a task, the labels where it waits, which belong to the
    /// first of the stacks.
    pub(super) link: AtomicU32,
    /// The auxiliary slot that had the waker last, plus 1.
    latest: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);
/// Numbers of labels and names are kept in 16 bits.
#[cfg(not(loom))]
const _: () = assert!(plimsoll_core::label::MAX_SETS <= 1 << 16);

/// Stands for the time of a wake while times are not recorded.
pub(super) const WOKEN: u64 = 1;

/// A function that returns the name of a type.
pub type TypeName = fn() -> &'static str;

/// The description of a task at its creation.
pub(super) struct Creation {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) type_name: TypeName,
    pub(super) location: &'static Location<'static>,
    pub(super) labels: u32,
}

impl Slot {
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self {
            control: Control::unused(),
            seen: AtomicU64::new(0),
            woken: AtomicU64::new(0),
            polls: AtomicU32::new(0),
            wakes_before: AtomicU32::new(0),
            since: AtomicU64::new(0),
            lent: AtomicUsize::new(0),
            inner: Inner::empty(),
            stacks: std::array::from_fn(|_| AtomicU32::new(0)),
            id: AtomicU64::new(0),
            parent: AtomicU64::new(0),
            type_name: AtomicUsize::new(0),
            location: AtomicUsize::new(0),
            poller: AtomicU32::new(0),
            labels: AtomicU16::new(0),
            name: AtomicU16::new(0),
            link: AtomicU32::new(0),
            latest: AtomicU32::new(0),
        }
    }

    /// Assigns the slot to a new task. No other thread may use the slot.
    pub(super) fn begin(&self, birth: &Creation) {
        self.polls.store(0, Ordering::Relaxed);
        self.woken.store(0, Ordering::Relaxed);
        self.wakes_before.store(0, Ordering::Relaxed);
        self.poller.store(0, Ordering::Relaxed);
        self.since.store(clock::coarse(), Ordering::Relaxed);
        self.forget_stacks();
        self.id.store(birth.id, Ordering::Relaxed);
        self.parent.store(birth.parent, Ordering::Relaxed);
        self.type_name
            .store(birth.type_name as usize, Ordering::Relaxed);
        self.location
            .store(ptr::from_ref(birth.location) as usize, Ordering::Relaxed);
        self.set_labels(birth.labels);
        self.name.store(0, Ordering::Relaxed);
        self.latest.store(0, Ordering::Relaxed);
        self.mark_seen();
        self.control.open_as_task();
    }

    /// Makes this an auxiliary slot of `task`, which has counted it, with one registration of that
    /// waker. No other thread may use the slot.
    pub(super) fn begin_auxiliary(&self, task: &Slot, waker: Waker) {
        self.link.store(SLAB.number(task), Ordering::Relaxed);
        // SAFETY: no other thread uses the slot.
        unsafe { self.inner.put(waker) };
        self.mark_seen();
        self.control.open_as_auxiliary();
    }

    /// Marks the slot with the current epoch, before it is opened: a cut contains only slots with
    /// an older mark.
    fn mark_seen(&self) {
        let turn = (self.seen.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.seen
            .store(turn << 32 | u64::from(CUTS.epoch()), Ordering::Relaxed);
    }

    /// Returns the slot of the task: this one, or the one for which it is auxiliary.
    pub(super) fn task(&'static self) -> &'static Slot {
        if self.control.load(Ordering::Relaxed).is_auxiliary() {
            SLAB.slot(self.link.load(Ordering::Relaxed))
        } else {
            self
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    pub(super) fn labels(&self) -> u32 {
        self.labels.load(Ordering::Relaxed).into()
    }

    pub(super) fn set_labels(&self, labels: u32) {
        self.labels.store(labels as u16, Ordering::Relaxed);
    }

    /// Returns the [`TypeName`] as an address.
    pub(super) fn type_name(&self) -> usize {
        self.type_name.load(Ordering::Relaxed)
    }

    /// Returns the address of the [`Location`] at which the task was created.
    pub(super) fn location(&self) -> usize {
        self.location.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self) -> u32 {
        self.name.load(Ordering::Relaxed).into()
    }

    pub(super) fn set_name(&self, name: u32) {
        self.name.store(name as u16, Ordering::Relaxed);
    }

    /// Records the task in its present state, if a cut is in progress that does not contain it yet.
    /// Must be called before any change.
    #[inline]
    pub(super) fn about_to_change(&self) {
        CUTS.about_to_change(self);
    }

    /// Begins a poll, for which the executor lends `waker`. Returns true if the slot holds a
    /// different waker, and so cannot pass on this one. Called by the poller.
    #[inline]
    pub(super) fn begin_poll(&self, thread: u32, waker: &Waker) -> bool {
        self.about_to_change();
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.poller.store(thread, Ordering::Relaxed);
        let control = self.control.load(Ordering::Acquire);
        let woken = self.woken.load(Ordering::Relaxed) != 0
            || control.wakes() != self.wakes_before.load(Ordering::Relaxed);
        if !woken && polls != 0 {
            self.control.mark_unmanaged();
        }
        self.woken.store(0, Ordering::Relaxed);
        self.wakes_before.store(control.wakes(), Ordering::Relaxed);
        self.lent
            .store(ptr::from_ref(waker) as usize, Ordering::Relaxed);
        if control.registrations() == 0 {
            self.forget_stacks();
            return false;
        }
        // SAFETY: registrations existed, so a waker was put into `inner`, and only the poller, this
        // thread, replaces it. If the last registration was released meanwhile, the waker was
        // dropped; but `is` compares only its two pointers, which are still in place.
        !unsafe { self.inner.is(waker) }
    }

    /// Ends the poll. Called by the poller.
    #[inline]
    pub(super) fn end_poll(&self, ready: bool) {
        if ready {
            self.control.mark_done();
        }
        self.since.store(clock::coarse(), Ordering::Relaxed);
        self.poller.store(0, Ordering::Relaxed);
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Release);
    }

    /// Notes that the future is dropped.
    pub(super) fn end(&self) {
        self.about_to_change();
        self.give_if_unused(self.control.release_future());
    }

    /// Begins a wake. Must be called before the executor is notified.
    #[inline]
    pub(super) fn wake_begins(&self) {
        self.woken.store(WOKEN, Ordering::Relaxed);
    }

    /// Begins a wake at a time, which must be greater than [`WOKEN`].
    pub(super) fn wake_begins_at(&self, at: u64) {
        // Fails if an earlier wake is noted.
        let _ = self
            .woken
            .compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes the time of the first wake since the last poll began, once; `None` if there was none,
    /// or its time is unknown. The poller calls this before the poll begins. (If a wake arrives
    /// between the two, before a poll without cause, its time is lost.)
    pub(super) fn take_wake(&self) -> Option<u64> {
        let at = self.woken.load(Ordering::Relaxed);
        (at > WOKEN).then(|| {
            // Other threads change it only from 0.
            self.woken.store(WOKEN, Ordering::Relaxed);
            at
        })
    }

    /// Sets the time of a wake since the poll began to `at`, if its time is known. Called by the
    /// poller before the poll ends.
    pub(super) fn put_off_wake(&self, at: u64) {
        if self.woken.load(Ordering::Relaxed) > WOKEN {
            // No other thread changes it.
            self.woken.store(at, Ordering::Relaxed);
        }
    }

    /// Ends a wake; the executor was notified, by a thread that keeps the registration.
    pub(super) fn wake_ends(&self) {
        self.control.count_wake();
    }

    /// Clears the stacks of the last wait. Called by the poller.
    pub(super) fn forget_stacks(&self) {
        if self.has_stack() {
            for stack in &self.stacks {
                stack.store(0, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn has_stack(&self) -> bool {
        self.stacks[0].load(Ordering::Relaxed) != 0
    }

    /// Adds a place where the task waits, and the labels there. Called by the poller. Only the
    /// first four places are kept, and only the labels of the first.
    pub(super) fn add_stack(&self, stack: StackName, labels: u32) {
        if !self.has_stack() {
            self.link.store(labels, Ordering::Relaxed);
        }
        for place in &self.stacks {
            let there = place.load(Ordering::Relaxed);
            if there == stack.0 {
                return;
            }
            if there == 0 {
                return place.store(stack.0, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether the slot has a live task.
    #[cfg(not(loom))]
    pub(super) fn is_task(&self) -> bool {
        self.control.load(Ordering::Relaxed).is_live()
    }
}
