//! The state of a task, as a reader sees it.

use std::panic::Location;

use plimsoll_sys::primitives::{AtomicU32, Ordering, fence};

use super::control::ControlSnapshot;
use super::{STACKS, Slot, TypeName};
use plimsoll_core::stack::StackName;

/// A task at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// The number of the task.
    pub id: u64,
    /// Its activity.
    pub state: State,
    /// The number of its polls.
    pub polls: u32,
    /// Further facts about it.
    pub facts: Facts,
    /// The task was polled by another task, which may do so at any time.
    pub nested: bool,
    /// Nothing can wake the task: no waker of it exists, it was not woken since its last poll
    /// began, and it is only polled after wakes.
    pub forgotten: bool,
    /// The number of registrations; `None` if the task may be polled without a wake by any of them.
    pub registrations: Option<u32>,
}

/// Further facts about a task.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The task or thread that created it.
    pub parent: u64,
    /// The end of the last poll, or the creation of the task, on
    /// [`plimsoll_sys::os::clock::coarse`].
    pub since: u64,
    /// The thread that polls the task; 0 if none does.
    pub poller: u32,
    /// The stacks of its creation and of where it waits.
    pub stacks: [StackName; STACKS],
    /// The number of its labels.
    pub labels: u32,
    /// The number of its name; 0 without one.
    pub name: u32,
    /// The type of its future.
    pub type_name: TypeName,
    /// The place that tracked it.
    pub location: &'static Location<'static>,
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

/// The activity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not yet polled.
    New,
    /// Being polled.
    Running,
    /// Woken, and waiting for a poll.
    Runnable,
    /// Waiting for a wake.
    Waiting,
    /// Without a waker, and not woken.
    NoWaker,
    /// Being dropped.
    Dropping,
}

impl Slot {
    /// Returns the present state of the task; `None` if the slot has none.
    pub(in crate::task) fn read(&self) -> Option<Seen> {
        loop {
            let polls = self.polls.load(Ordering::Acquire);
            // Before the other fields: a thread that released a registration had noted its wake
            // before.
            let control = self.control.load(Ordering::Acquire);
            if !control.is_live() {
                return None;
            }
            let seen = self.seen_as(polls, control);
            fence(Ordering::Acquire);
            if polls % 2 == 1 || self.polls.load(Ordering::Relaxed) == polls {
                return Some(seen);
            }
        }
    }

    /// Returns the fields on which no protocol depends; the models omit them.
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
            // SAFETY: `begin` stores both fields before it opens the slot for a task, and `read`
            // found a task.
            type_name: unsafe { std::mem::transmute::<usize, TypeName>(type_name) },
            // SAFETY: `begin` stored the address of a `&'static Location` before it opened the slot
            // for a task.
            location: unsafe { &*location },
        }
    }

    fn seen_as(&self, polls: u32, control: ControlSnapshot) -> Seen {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let is_polled = polls % 2 == 1;
        let woken =
            self.woken.load(Ordering::Relaxed) != 0 || control.wakes() != load(&self.wakes_before);
        let unregistered = control.registrations() == 0 && !control.has_auxiliaries();
        // Whether each poll follows a wake by a waker that points to the slot.
        let is_driven = !control.is_unmanaged() && !control.is_nested();
        let state = if control.is_dropping() {
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
            nested: control.is_nested(),
            forgotten: state == State::NoWaker && is_driven,
            registrations: (is_driven && !control.has_auxiliaries())
                .then_some(control.registrations()),
        }
    }
}
