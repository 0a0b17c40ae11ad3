//! What is known of a task, in a slot of its own, and the protocol by which it changes.
//!
//! Slots are never freed, only used again, so whoever has a pointer to one can always look; all
//! fields but one are atomic. Three parties write to a slot:
//!
//! * the *poller*, of which there is one at a time: `polls` is odd meanwhile, so that a reader
//!   knows that the rest may be changing;
//! * who *wakes* the task, or clones and drops registrations: only `control`, `started`,
//!   `finished`, `woken`;
//! * the *reader* of a [`cut`], which writes to `seen` alone.
//!
//! A slot is given back when the future is gone and the last registration with it.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr;
use std::task::Waker;

use super::cut;
use super::slab::SLAB;
use crate::os::clock;
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::stack::StackName;

/// The parts of [`Slot::control`].
pub(super) mod control {
    /// One registration: a waker of ours that somebody has. In the lower 32 bits.
    pub(in super::super) const REGISTRATION: u64 = 1;
    pub(in super::super) const REGISTRATIONS: u64 = (1 << 32) - 1;
    /// One auxiliary slot that is in use for this one. In 16 bits.
    pub(in super::super) const AUXILIARY: u64 = 1 << 32;
    pub(in super::super) const AUXILIARIES: u64 = 0xffff << 32;
    /// The future is there.
    pub(in super::super) const HELD: u64 = 1 << 48;
    /// It is ready.
    pub(in super::super) const DONE: u64 = 1 << 49;
    /// It is being dropped.
    pub(in super::super) const DROPPING: u64 = 1 << 50;
    /// It was polled without having been woken, or has a waker that does nothing: what it waits
    /// for, nobody can tell.
    pub(in super::super) const UNMANAGED: u64 = 1 << 51;
    /// It was polled by another task.
    pub(in super::super) const NESTED: u64 = 1 << 52;
    /// This is no task, but has a waker for one.
    pub(in super::super) const IS_AUXILIARY: u64 = 1 << 53;
}

use control::*;

/// How many stacks are kept of what a task waits for.
pub(crate) const STACKS: usize = 4;

/// See the module documentation.
#[repr(C, align(64))]
pub(super) struct Slot {
    /// Counts and flags, see [`control`].
    pub(super) control: AtomicU64,
    /// The lower half is the [epoch][cut] in which the task was recorded last, or made; the upper
    /// half is which task this is of those that had the slot.
    pub(super) seen: AtomicU64,
    /// Wakes that were begun, and that are over.
    started: AtomicU32,
    finished: AtomicU32,
    /// Polls, twice, and 1 while it is being polled.
    polls: AtomicU32,
    /// `started` when the last poll began.
    started_before_poll: AtomicU32,
    /// When the last poll ended, or the task was made.
    since: AtomicU64,
    /// How long after that it was woken for the first time, in units of 1,024 ns, and 1.
    woken_after: AtomicU32,
    /// The thread that polls it.
    poller: AtomicU32,
    /// What to wake. There while there are registrations.
    inner: UnsafeCell<MaybeUninit<Waker>>,

    stacks: [AtomicU32; STACKS],
    id: AtomicU64,
    parent: AtomicU64,
    /// A `TypeName`.
    type_name: AtomicUsize,
    /// A `&'static Location<'static>`.
    location: AtomicUsize,
    labels: AtomicU32,
    name: AtomicU32,
    /// Of an auxiliary slot, the number of the slot that it is for; of a free one, the next free
    /// one, and 1.
    pub(super) link: AtomicU32,
    /// The auxiliary slot that had the waker last, and 1.
    latest: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 128);

// SAFETY: `inner` is only read by who has a registration, and only written while there are none, by
// the one poller; everything else is atomic. A `Waker` is `Send` and `Sync`.
unsafe impl Sync for Slot {}

/// Names a type.
pub(super) type TypeName = fn() -> &'static str;

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
    pub(crate) parent: u64,
    pub(crate) state: State,
    pub(crate) polls: u32,
    /// When the last poll ended, or the task was made, and when it was woken since, on
    /// [`clock`]; 0 if it was not.
    pub(crate) since: u64,
    pub(crate) woken: u64,
    /// The thread that polls it; 0 if none does.
    pub(crate) poller: u32,
    pub(crate) stacks: [StackName; STACKS],
    pub(crate) labels: u32,
    pub(crate) name: u32,
    pub(crate) type_name: fn() -> &'static str,
    pub(crate) location: &'static Location<'static>,
    /// Polled by another task, which may do so whenever it likes.
    pub(crate) nested: bool,
    /// Nothing is left that could wake it: nobody has a waker of it, nor was it woken since its
    /// last poll began, and it is only ever polled when it was.
    pub(crate) forgotten: bool,
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

impl Slot {
    /// Makes it a new task's. Nobody else has it.
    pub(super) fn begin(&self, birth: &Birth) {
        self.started.store(0, Ordering::Relaxed);
        self.finished.store(0, Ordering::Relaxed);
        self.polls.store(0, Ordering::Relaxed);
        self.started_before_poll.store(0, Ordering::Relaxed);
        self.since.store(clock::now(), Ordering::Relaxed);
        self.woken_after.store(0, Ordering::Relaxed);
        self.poller.store(0, Ordering::Relaxed);
        self.forget_stacks();
        self.id.store(birth.id, Ordering::Relaxed);
        self.parent.store(birth.parent, Ordering::Relaxed);
        self.type_name
            .store(birth.type_name as usize, Ordering::Relaxed);
        self.location
            .store(ptr::from_ref(birth.location) as usize, Ordering::Relaxed);
        self.labels.store(birth.labels, Ordering::Relaxed);
        self.name.store(0, Ordering::Relaxed);
        self.latest.store(0, Ordering::Relaxed);
        self.open(HELD);
    }

    /// Makes it an auxiliary slot for another, with one registration of that waker. Nobody else has
    /// it.
    pub(super) fn begin_auxiliary(&self, task: &Slot, waker: Waker) {
        self.link.store(SLAB.number(task), Ordering::Relaxed);
        // SAFETY: nobody else has the slot.
        unsafe { (*self.inner.get()).write(waker) };
        task.control.fetch_add(AUXILIARY, Ordering::Relaxed);
        self.open(IS_AUXILIARY | REGISTRATION);
    }

    /// What has an older epoch than that is in the cut.
    fn open(&self, control: u64) {
        let turn = (self.seen.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.seen
            .store(turn << 32 | u64::from(cut::epoch()), Ordering::Relaxed);
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
        self.labels.load(Ordering::Relaxed)
    }

    pub(super) fn set_labels(&self, labels: u32) {
        self.labels.store(labels, Ordering::Relaxed);
    }

    pub(super) fn set_name(&self, name: u32) {
        self.name.store(name, Ordering::Relaxed);
    }

    /// To be called before anything changes: records the task as it is, if a cut is being taken
    /// that does not have it yet.
    #[inline]
    pub(super) fn about_to_change(&self) {
        cut::about_to_change(self);
    }

    /// The poll begins. To be called by the poller.
    pub(super) fn begin_poll(&self, thread: u32) {
        self.about_to_change();
        let polls = self.polls.load(Ordering::Relaxed);
        self.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.poller.store(thread, Ordering::Relaxed);
        let started = self.started.load(Ordering::Acquire);
        if polls != 0 && started == self.started_before_poll.load(Ordering::Relaxed) {
            self.flag(UNMANAGED);
        }
        self.started_before_poll.store(started, Ordering::Relaxed);
    }

    /// The poll is over. To be called by the poller.
    pub(super) fn end_poll(&self, ready: bool) {
        self.about_to_change();
        if ready {
            self.control.fetch_or(DONE, Ordering::Relaxed);
        }
        self.woken_after.store(0, Ordering::Relaxed);
        self.since.store(clock::now(), Ordering::Relaxed);
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

    /// A registration of `waker` for the poll that begins, by the poller: one more of those that
    /// there are if they are of the same waker. False if they are of another. The second is whether
    /// there was none.
    pub(super) fn register(&self, waker: &Waker) -> Option<Fresh> {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            if control & REGISTRATIONS == 0 {
                let waker = waker.clone();
                // SAFETY: there is no registration, and nobody else makes the first.
                unsafe { (*self.inner.get()).write(waker) };
                self.control.fetch_add(REGISTRATION, Ordering::Release);
                return Some(Fresh(true));
            }
            match self.control.compare_exchange_weak(
                control,
                control + REGISTRATION,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(other) => control = other,
            }
        }
        // SAFETY: there is a registration: the one just made.
        if unsafe { self.inner() }.will_wake(waker) {
            return Some(Fresh(false));
        }
        self.release();
        None
    }

    /// The same for a waker that the slot itself has another one in place of, in an auxiliary slot.
    /// `None` if there is no room.
    #[cold]
    pub(super) fn register_elsewhere(&self, waker: &Waker) -> Option<&'static Slot> {
        if let Some(latest) = self.latest.load(Ordering::Relaxed).checked_sub(1) {
            let latest = SLAB.slot(latest);
            if latest.register_again(self, waker) {
                return Some(latest);
            }
        }
        let auxiliary = SLAB.take()?;
        auxiliary.begin_auxiliary(self, waker.clone());
        self.latest
            .store(SLAB.number(auxiliary) + 1, Ordering::Relaxed);
        Some(auxiliary)
    }

    /// One more registration of an auxiliary slot, if it has some, is still for `task`, and has
    /// that waker.
    fn register_again(&self, task: &Slot, waker: &Waker) -> bool {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            if control & REGISTRATIONS == 0 || control & IS_AUXILIARY == 0 {
                return false;
            }
            match self.control.compare_exchange_weak(
                control,
                control + REGISTRATION,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(other) => control = other,
            }
        }
        let same = self.link.load(Ordering::Relaxed) == SLAB.number(task)
            // SAFETY: there is a registration: the one just made.
            && unsafe { self.inner() }.will_wake(waker);
        if !same {
            self.release();
        }
        same
    }

    /// What to wake.
    ///
    /// # Safety
    /// There is a registration, and it stays.
    pub(super) unsafe fn inner(&self) -> &Waker {
        // SAFETY: with a registration, it is there and is not written to.
        unsafe { (*self.inner.get()).assume_init_ref() }
    }

    /// One registration less: one that there is. With the last, the executor's waker is dropped.
    pub(super) fn release(&self) {
        let mut control = self.control.load(Ordering::Acquire);
        loop {
            let last = control & REGISTRATIONS == REGISTRATION;
            // Taken out before it is known to be the last: afterwards, somebody else may have put
            // another one there. SAFETY: there is a registration, so it is there. If it turns out
            // not to be the last, the copy is forgotten.
            let inner = last.then(|| unsafe { self.inner.get().read() });
            let next = control - REGISTRATION;
            match self.control.compare_exchange_weak(
                control,
                next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    if let Some(mut inner) = inner {
                        // SAFETY: it was there, and is nobody else's now.
                        unsafe { inner.assume_init_drop() };
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

    /// A wake begins; to be followed by [`Slot::wake_ends`].
    pub(super) fn wake_begins(&self) {
        if self.woken_after.load(Ordering::Relaxed) == 0 {
            let after = clock::now().saturating_sub(self.since.load(Ordering::Relaxed)) / 1024;
            let after = u32::try_from(after).unwrap_or(u32::MAX - 1) + 1;
            self.woken_after.store(after, Ordering::Relaxed);
        }
        self.started.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn wake_ends(&self) {
        self.finished.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets what it waited for. By the poller.
    pub(super) fn forget_stacks(&self) {
        for stack in &self.stacks {
            stack.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn has_stack(&self) -> bool {
        self.stacks[0].load(Ordering::Relaxed) != 0
    }

    /// Notes where it waits. By the poller. The fifth place and those after it are not kept.
    pub(super) fn add_stack(&self, stack: StackName) {
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

    /// The task as it is now; `None` if there is none.
    pub(super) fn read(&self) -> Option<Seen> {
        loop {
            let polls = self.polls.load(Ordering::Acquire);
            // First: whoever gave up a registration has counted the wakes of it.
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

    fn seen_as(&self, polls: u32, control: u64) -> Seen {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let is_polled = polls % 2 == 1;
        let started = self.started.load(Ordering::Acquire);
        let woken = started != load(&self.started_before_poll);
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
        let since = self.since.load(Ordering::Relaxed);
        let type_name = self.type_name.load(Ordering::Relaxed);
        let location = self.location.load(Ordering::Relaxed) as *const Location<'static>;
        Seen {
            id: self.id(),
            parent: self.parent.load(Ordering::Relaxed),
            state,
            polls: polls.div_ceil(2),
            since,
            woken: match load(&self.woken_after) {
                0 => 0,
                after => since + u64::from(after - 1) * 1024,
            },
            poller: load(&self.poller),
            stacks: std::array::from_fn(|at| {
                StackName(if is_polled { 0 } else { load(&self.stacks[at]) })
            }),
            labels: load(&self.labels),
            name: load(&self.name),
            // SAFETY: a task has both from the beginning, and slots are used for tasks only once
            // they were.
            type_name: unsafe { std::mem::transmute::<usize, TypeName>(type_name) },
            // SAFETY: as above.
            location: unsafe { &*location },
            nested: control & NESTED != 0,
            forgotten: state == State::NoWaker
                && self.finished.load(Ordering::Acquire) == started
                && control & (UNMANAGED | NESTED) == 0,
        }
    }
}

/// Whether there was no registration before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fresh(pub(super) bool);
