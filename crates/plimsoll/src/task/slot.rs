//! What is known of a task, in a slot of its own, and the protocol by which it changes.
//!
//! Slots are never freed, only used again, so whoever has a pointer to one can always look; all
//! fields but one are atomic. Three parties write to a slot:
//!
//! * the *poller*, of which there is one at a time: `polls` is odd meanwhile, so that a reader
//!   knows that the rest may be changing;
//! * who *wakes* the task, or clones and drops registrations: only `control` and `woken`;
//! * the *reader* of a [cut](super::cut), which writes to `seen` alone.
//!
//! A slot is given back when the future is gone and the last registration with it.
//!
//! # The executor's waker
//! The waker that a task hands out points to its slot. While there are registrations, that is
//! clones of it, the slot has one clone of the executor's waker, `inner`; otherwise none. The first
//! registration is made while the task is polled, by its poller, of the waker that the executor
//! lends for the poll. That is the only time when `inner` is written.
//!
//! Both counts in `control` are bounded where they are raised, by a compare-and-swap, so that
//! neither runs into its neighbour or back to zero. A registration above [`MAX_REGISTRATIONS`]
//! aborts the process, as [`Arc`](std::sync::Arc) does: safe code reaches that number with wakers
//! that it forgets, and one more would free the executor's waker under those that are left. An
//! auxiliary slot above [`MAX_AUXILIARIES`] is refused, and the executor's own waker is used.
//!
//! # Forgotten tasks
//! A task for which there is no registration, and which was not woken since its last poll began,
//! will never be polled again. A wake is noted twice: in `woken` before the executor is told, and
//! in the count of wakes after, before or with the release of its registration. A poll that begins
//! clears the one and remembers the other. So a wake that is told to the executor after a poll
//! began shows in one of the two, whenever it began itself.

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use super::cut::CUTS;
use super::inner::Inner;
use super::slab::SLAB;
use crate::os::clock;
use crate::primitives::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::stack::StackName;

/// The parts of [`Slot::control`].
pub(super) mod control {
    /// One registration: a waker of ours that somebody has. In the lower 32 bits.
    pub(in super::super) const REGISTRATION: u64 = 1;
    pub(in super::super) const REGISTRATIONS: u64 = (1 << 32) - 1;
    /// Half of what 32 bits count, as for an `Arc`.
    pub(in super::super) const MAX_REGISTRATIONS: u32 = i32::MAX as u32;
    /// One auxiliary slot that is in use for this one. In 8 bits.
    pub(in super::super) const AUXILIARY: u64 = 1 << 32;
    pub(in super::super) const AUXILIARIES: u64 = 0xff << 32;
    /// Half of what 8 bits count.
    pub(in super::super) const MAX_AUXILIARIES: u64 = 0x7f << 32;
    /// The future is there.
    pub(in super::super) const HELD: u64 = 1 << 40;
    /// It is ready.
    pub(in super::super) const DONE: u64 = 1 << 41;
    /// It is being dropped.
    pub(in super::super) const DROPPING: u64 = 1 << 42;
    /// It was polled without having been woken, or has a waker that does nothing: what it waits
    /// for, nobody can tell.
    pub(in super::super) const UNMANAGED: u64 = 1 << 43;
    /// It was polled by another task.
    pub(in super::super) const NESTED: u64 = 1 << 44;
    /// This is no task, but has a waker for one.
    pub(in super::super) const IS_AUXILIARY: u64 = 1 << 45;
    /// A wake that is over. In 16 bits: not so many are under way at once.
    pub(in super::super) const WAKE: u64 = 1 << 48;

    /// How many wakes are over.
    pub(in super::super) fn wakes(control: u64) -> u32 {
        (control >> 48) as u32
    }
}

use control::*;

/// How many stacks are kept of what a task waits for.
pub(crate) const STACKS: usize = 4;

/// See the module documentation.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Counts and flags, see [`control`].
    pub(super) control: AtomicU64,
    /// The lower half is the [epoch](super::cut) in which the task was recorded last, or made; the
    /// upper half is which task this is of those that had the slot.
    pub(super) seen: AtomicU64,
    /// Of the first wake that began since the last poll did, the time, or [`WOKEN`]; 0 if there
    /// was none.
    woken: AtomicU64,
    /// Polls, twice, and 1 while it is being polled.
    polls: AtomicU32,
    /// How many wakes were over when the last poll began.
    wakes_before: AtomicU32,
    /// When the last poll ended, or the task was made.
    since: AtomicU64,
    /// The waker that the executor lends for the poll that is under way.
    lent: AtomicUsize,
    /// What to wake.
    inner: Inner,

    stacks: [AtomicU32; STACKS],
    id: AtomicU64,
    parent: AtomicU64,
    /// A `TypeName`.
    type_name: AtomicUsize,
    /// A `&'static Location<'static>`.
    location: AtomicUsize,
    /// The thread that polls it.
    poller: AtomicU32,
    labels: AtomicU16,
    name: AtomicU16,
    /// Of an auxiliary slot, the number of the slot that it is for; of a free one, the next free
    /// one, and 1; of a task, its labels where it waits, which go with the first of the stacks.
    pub(super) link: AtomicU32,
    /// The auxiliary slot that had the waker last, and 1.
    latest: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 128);
/// Numbers of labels and names are kept in 16 bits.
#[cfg(not(loom))]
const _: () = assert!(crate::label::MOST_SETS <= 1 << 16);

/// In place of the time of a wake, where that is not wanted.
pub(super) const WOKEN: u64 = 1;

/// Names a type.
pub(crate) type TypeName = fn() -> &'static str;

/// What is told of a task when it is made.
pub(super) struct Birth {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) type_name: TypeName,
    pub(super) location: &'static Location<'static>,
    pub(super) labels: u32,
}

/// A task, as it is at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) state: State,
    pub(crate) polls: u32,
    pub(crate) facts: Facts,
    /// Polled by another task, which may do so whenever it likes.
    pub(crate) nested: bool,
    /// Nothing is left that could wake it: nobody has a waker of it, nor was it woken since its
    /// last poll began, and it is only ever polled when it was.
    pub(crate) forgotten: bool,
    /// How many registrations there are; `None` if it may be polled without a wake by any of them.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "locks of tokio's"))]
    pub(crate) registrations: Option<u32>,
}

/// What else is told of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) parent: u64,
    /// When the last poll ended, or the task was made, on [`clock::coarse`].
    pub(crate) since: u64,
    /// The thread that polls it; 0 if none does.
    pub(crate) poller: u32,
    pub(crate) stacks: [StackName; STACKS],
    pub(crate) labels: u32,
    pub(crate) name: u32,
    pub(crate) type_name: TypeName,
    pub(crate) location: &'static Location<'static>,
}

impl Facts {
    const NONE: Self = Self {
        parent: 0,
        since: 0,
        poller: 0,
        stacks: [StackName(0); STACKS],
        labels: 0,
        name: 0,
        type_name: || "",
        location: Location::caller(),
    };
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    New,
    Running,
    Runnable,
    Waiting,
    NoWaker,
    Dropping,
}

/// The process has [`MAX_REGISTRATIONS`] wakers of one task.
#[cold]
#[inline(never)]
fn too_many_registrations() -> ! {
    std::process::abort()
}

impl Slot {
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self {
            control: AtomicU64::new(0),
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

    /// Makes it a new task's. Nobody else has it.
    pub(super) fn begin(&self, birth: &Birth) {
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
        self.open(HELD);
    }

    /// Makes it an auxiliary slot for another, which has counted it, with one registration of that
    /// waker. Nobody else has it.
    pub(super) fn begin_auxiliary(&self, task: &Slot, waker: Waker) {
        self.link.store(SLAB.number(task), Ordering::Relaxed);
        // SAFETY: nobody else has the slot.
        unsafe { self.inner.put(waker) };
        self.open(IS_AUXILIARY | REGISTRATION);
    }

    /// What has an older epoch than that is in the cut.
    fn open(&self, control: u64) {
        let turn = (self.seen.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.seen
            .store(turn << 32 | u64::from(CUTS.epoch()), Ordering::Relaxed);
        self.control.store(control, Ordering::Release);
    }

    /// The task that this is the slot of, or that it is for.
    pub(super) fn task(&'static self) -> &'static Slot {
        if self.control.load(Ordering::Relaxed) & IS_AUXILIARY == 0 {
            self
        } else {
            SLAB.slot(self.link.load(Ordering::Relaxed))
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

    /// A [`TypeName`].
    pub(super) fn type_name(&self) -> usize {
        self.type_name.load(Ordering::Relaxed)
    }

    pub(super) fn name(&self) -> u32 {
        self.name.load(Ordering::Relaxed).into()
    }

    pub(super) fn set_name(&self, name: u32) {
        self.name.store(name as u16, Ordering::Relaxed);
    }

    /// To be called before anything changes: records the task as it is, if a cut is being taken
    /// that does not have it yet.
    #[inline]
    pub(super) fn about_to_change(&self) {
        CUTS.about_to_change(self);
    }

    /// The poll begins, for which the executor lends `waker`. To be called by the poller. True if
    /// the slot has another waker than that, and cannot hand out this one.
    #[inline]
    pub(super) fn begin_poll(&self, thread: u32, waker: &Waker) -> bool {
        self.about_to_change();
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.poller.store(thread, Ordering::Relaxed);
        let control = self.control.load(Ordering::Acquire);
        let woken = self.woken.load(Ordering::Relaxed) != 0
            || wakes(control) != self.wakes_before.load(Ordering::Relaxed);
        if !woken && polls != 0 {
            self.flag(UNMANAGED);
        }
        self.woken.store(0, Ordering::Relaxed);
        self.wakes_before.store(wakes(control), Ordering::Relaxed);
        self.lent
            .store(ptr::from_ref(waker) as usize, Ordering::Relaxed);
        if control & REGISTRATIONS == 0 {
            self.forget_stacks();
            return false;
        }
        // SAFETY: it was there, and only the poller writes to it. If the last registration was
        // given up in the meantime, it was dropped, and stands for nothing any more; but what it is
        // compared by is still what it was.
        !unsafe { self.inner.is(waker) }
    }

    /// The poll is over. To be called by the poller.
    #[inline]
    pub(super) fn end_poll(&self, ready: bool) {
        if ready {
            self.control.fetch_or(DONE, Ordering::Relaxed);
        }
        self.since.store(clock::coarse(), Ordering::Relaxed);
        self.poller.store(0, Ordering::Relaxed);
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Release);
    }

    /// Sets a flag, if it is not set.
    pub(super) fn flag(&self, flag: u64) {
        if self.control.load(Ordering::Relaxed) & flag == 0 {
            self.control.fetch_or(flag, Ordering::Relaxed);
        }
    }

    /// One more registration: by somebody who has one, or who has the waker that was lent for the
    /// poll that is under way. `by_poller` says that it is the poller. `None` if there is none yet,
    /// and it is not for the caller to make the first.
    #[inline]
    pub(super) fn register(&self, by_poller: bool) -> Option<()> {
        if self.add_registration(|_| true) {
            return Some(());
        }
        if !by_poller {
            return None;
        }
        // What it waited for until this poll, it does no more.
        self.forget_stacks();
        let waker = self.lent().clone();
        // SAFETY: there is no registration, and nobody but the poller makes the first.
        unsafe { self.inner.put(waker) };
        self.control.fetch_add(REGISTRATION, Ordering::Release);
        Some(())
    }

    /// Counts one more registration. False, and nothing is counted, if there is none or `accepts`
    /// refuses what [`control`] is. Aborts the process above [`MAX_REGISTRATIONS`].
    #[inline]
    fn add_registration(&self, accepts: impl Fn(u64) -> bool) -> bool {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            // One comparison for both bounds: none wraps to more than any number.
            if (control as u32).wrapping_sub(1) >= MAX_REGISTRATIONS - 1 {
                if control & REGISTRATIONS == 0 {
                    return false;
                }
                too_many_registrations();
            }
            if !accepts(control) {
                return false;
            }
            match self.control.compare_exchange_weak(
                control,
                control + REGISTRATION,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(other) => control = other,
            }
        }
    }

    /// The waker that is lent for the poll that is under way.
    pub(super) fn lent(&self) -> &Waker {
        // SAFETY: the callers have been handed our waker in that poll, and the executor's is there
        // as long as ours is.
        unsafe { &*(self.lent.load(Ordering::Relaxed) as *const Waker) }
    }

    /// A registration of a waker that the slot itself has another one in place of, or that somebody
    /// else than the poller asks for first: in an auxiliary slot. `None` if there is no room.
    #[cold]
    pub(super) fn register_elsewhere(&self, waker: &Waker) -> Option<&'static Slot> {
        if let Some(latest) = self.latest.load(Ordering::Relaxed).checked_sub(1) {
            let latest = SLAB.slot(latest);
            if latest.register_again(self, waker) {
                return Some(latest);
            }
        }
        if !self.add_auxiliary() {
            return None;
        }
        let Some(auxiliary) = SLAB.take() else {
            // The task is being polled, so this was not what kept its slot.
            self.control.fetch_sub(AUXILIARY, Ordering::Relaxed);
            return None;
        };
        auxiliary.begin_auxiliary(self, waker.clone());
        self.latest
            .store(SLAB.number(auxiliary) + 1, Ordering::Relaxed);
        Some(auxiliary)
    }

    /// Counts one more auxiliary slot. False, and nothing is counted, at [`MAX_AUXILIARIES`].
    fn add_auxiliary(&self) -> bool {
        let one_more = |control| {
            let is_room = control & AUXILIARIES < MAX_AUXILIARIES;
            is_room.then_some(control + AUXILIARY)
        };
        self.control
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
    }

    /// One more registration of an auxiliary slot, if it has some, is still for `task`, and has
    /// that waker.
    fn register_again(&self, task: &Slot, waker: &Waker) -> bool {
        if !self.add_registration(|control| control & IS_AUXILIARY != 0) {
            return false;
        }
        let same = self.link.load(Ordering::Relaxed) == SLAB.number(task)
            // SAFETY: there is a registration: the one just made.
            && unsafe { self.inner.is(waker) };
        if !same {
            self.release();
        }
        same
    }

    /// Tells the executor.
    ///
    /// # Safety
    /// There is a registration, and it stays.
    pub(super) unsafe fn wake_inner(&self) {
        // SAFETY: with a registration, it is there and is not written to.
        unsafe { self.inner.wake() };
    }

    /// One registration less: one that there is. With the last, the executor's waker is dropped.
    pub(super) fn release(&self) {
        self.release_and(0);
    }

    /// The same, after a wake through it.
    pub(super) fn release_after_wake(&self) {
        self.release_and(WAKE);
    }

    #[inline]
    fn release_and(&self, add: u64) {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            let last = control & REGISTRATIONS == REGISTRATION;
            // Taken out before it is known to be the last: afterwards, somebody else may have put
            // another one there. SAFETY: there is a registration, so it is there. If it turns out
            // not to be the last, the copy is forgotten.
            let inner = last.then(|| unsafe { self.inner.copy() });
            let next = (control - REGISTRATION).wrapping_add(add);
            match self.control.compare_exchange_weak(
                control,
                next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    if let Some(inner) = inner {
                        // It is nobody else's now.
                        drop(ManuallyDrop::into_inner(inner));
                        self.released_last(next);
                    }
                    return;
                }
                Err(other) => control = other,
            }
        }
    }

    /// The last registration is gone, which left `control`.
    fn released_last(&self, control: u64) {
        if control & IS_AUXILIARY != 0 {
            let task = SLAB.slot(self.link.load(Ordering::Relaxed));
            SLAB.give(self);
            let left = task.control.fetch_sub(AUXILIARY, Ordering::AcqRel) - AUXILIARY;
            task.give_if_unused(left);
        } else {
            self.give_if_unused(control);
        }
    }

    /// The future is gone.
    pub(super) fn end(&self) {
        self.about_to_change();
        let left = self.control.fetch_and(!HELD, Ordering::AcqRel) & !HELD;
        self.give_if_unused(left);
    }

    fn give_if_unused(&self, control: u64) {
        if control & (HELD | REGISTRATIONS | AUXILIARIES) == 0 {
            SLAB.give(self);
        }
    }

    /// A wake begins: to be called before the executor is told.
    #[inline]
    pub(super) fn wake_begins(&self) {
        self.woken.store(WOKEN, Ordering::Relaxed);
    }

    /// The same at a time, which is more than [`WOKEN`].
    pub(super) fn wake_begins_at(&self, at: u64) {
        // If it fails, this is not the first.
        let _ = self
            .woken
            .compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The time of the first wake since the last poll began, if there was one and its time is
    /// known: once. To be called by the poller before the poll begins. (A wake that comes between
    /// the two, before a poll that nobody asked for, has its time forgotten.)
    pub(super) fn take_wake(&self) -> Option<u64> {
        let at = self.woken.load(Ordering::Relaxed);
        (at > WOKEN).then(|| {
            // Nobody else changes it, but to this.
            self.woken.store(WOKEN, Ordering::Relaxed);
            at
        })
    }

    /// A wake since the poll began whose time is known has that time in its place. To be called by
    /// the poller before the poll ends.
    pub(super) fn put_off_wake(&self, at: u64) {
        if self.woken.load(Ordering::Relaxed) > WOKEN {
            // Nobody else changes it.
            self.woken.store(at, Ordering::Relaxed);
        }
    }

    /// The executor was told, by somebody who keeps the registration.
    pub(super) fn wake_ends(&self) {
        // The carry is nobody's.
        self.control.fetch_add(WAKE, Ordering::Release);
    }

    /// Forgets what it waited for. By the poller.
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

    /// Notes where it waits, and the labels there. By the poller. The fifth place and those after
    /// it are not kept, and of the labels, those of the first.
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

    /// Sets how many registrations are counted, and returns how many were.
    #[cfg(all(test, not(loom)))]
    pub(super) fn set_registrations(&self, count: u32) -> u32 {
        let control = self.control.load(Ordering::Relaxed);
        let changed = control & !REGISTRATIONS | u64::from(count);
        self.control.store(changed, Ordering::Relaxed);
        control as u32
    }

    /// Whether there is a task now.
    #[cfg(not(loom))]
    pub(super) fn is_task(&self) -> bool {
        self.control.load(Ordering::Relaxed) & (HELD | DONE) == HELD
    }

    /// The task as it is now; `None` if there is none.
    pub(super) fn read(&self) -> Option<Seen> {
        loop {
            let polls = self.polls.load(Ordering::Acquire);
            // Before the rest: whoever gave up a registration had noted the wake.
            let control = self.control.load(Ordering::Acquire);
            if control & HELD == 0 || control & DONE != 0 {
                return None;
            }
            let seen = self.seen_as(polls, control);
            fence(Ordering::Acquire);
            if polls % 2 == 1 || self.polls.load(Ordering::Relaxed) == polls {
                return Some(seen);
            }
        }
    }

    /// What no protocol depends on: the models do without.
    fn facts(&self, is_polled: bool) -> Facts {
        if cfg!(loom) {
            return Facts::NONE;
        }
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let type_name = self.type_name.load(Ordering::Relaxed);
        let location = self.location.load(Ordering::Relaxed) as *const Location<'static>;
        Facts {
            parent: self.parent.load(Ordering::Relaxed),
            since: self.since.load(Ordering::Relaxed),
            poller: load(&self.poller),
            stacks: std::array::from_fn(|at| {
                StackName(if is_polled { 0 } else { load(&self.stacks[at]) })
            }),
            labels: if is_polled || !self.has_stack() {
                self.labels()
            } else {
                load(&self.link)
            },
            name: self.name(),
            // SAFETY: a task has both from the beginning, and slots are used for tasks only once
            // they were.
            type_name: unsafe { std::mem::transmute::<usize, TypeName>(type_name) },
            // SAFETY: as above.
            location: unsafe { &*location },
        }
    }

    fn seen_as(&self, polls: u32, control: u64) -> Seen {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let is_polled = polls % 2 == 1;
        let woken =
            self.woken.load(Ordering::Relaxed) != 0 || wakes(control) != load(&self.wakes_before);
        let unregistered = control & (REGISTRATIONS | AUXILIARIES) == 0;
        let state = if control & DROPPING != 0 {
            State::Dropping
        } else if is_polled {
            State::Running
        } else if polls == 0 {
            State::New
        } else if woken {
            State::Runnable
        } else if unregistered {
            State::NoWaker
        } else {
            State::Waiting
        };
        Seen {
            id: self.id(),
            state,
            polls: polls.div_ceil(2),
            facts: self.facts(is_polled),
            nested: control & NESTED != 0,
            forgotten: state == State::NoWaker && control & (UNMANAGED | NESTED) == 0,
            registrations: (control & (UNMANAGED | NESTED | AUXILIARIES) == 0)
                .then_some((control & REGISTRATIONS) as u32),
        }
    }
}
