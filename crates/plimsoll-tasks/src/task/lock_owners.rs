//! The owners of locks of `plimsoll::sync::tokio`, the creators of the senders of oneshot channels,
//! and the tasks that wait for these.
//!
//! All are noted only while [`recording::notes_owners`] is true. An [`Owner`] is part of the lock.
//! A task that takes all of the lock stores its number there, and the guard's drop clears it. A
//! task that has to wait takes a *place* in a table until its wait is over.
//!
//! # What a reader may conclude
//! The reader takes a cut of all tasks, reads the table and the owners, and takes another cut. A
//! task that was suspended in both cuts, with the same number of polls begun, did nothing in
//! between. If all of its registrations belong to waits in the table, only the grant of one of
//! these locks wakes it.
//!
//! An owner is the task that made the guard. A guard can be sent to another task, or stored where
//! any code can drop it, and Rust runs no code when a value is moved. So it is never certain that
//! an owner still has the guard, and `plimsoll_waits::leak` reports a cycle of tasks as probable, not as
//! proved.
//!
//! The same holds for the sender of a oneshot channel, with weaker evidence: most senders are moved
//! to the task that answers. A sender that was used or dropped has woken the receiver, so the sender
//! of a suspended receiver still exists. `plimsoll_waits::leak` considers such a wait only if it is old.

use std::task::Context;

use plimsoll_sys::os::thread_place;
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use super::current;
use crate::recording;

/// The task that made the guard of all of a lock. 0 if no such guard exists, if no task made it, or
/// if owners were not noted at that time.
#[derive(Debug)]
pub struct Owner(AtomicUsize);

impl Owner {
    /// Returns no owner.
    pub const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Records the task that the calling thread polls, if any, as the owner of all of the lock, if
    /// owners are noted.
    #[inline]
    pub fn taken(&self) {
        if recording::notes_owners() {
            self.note();
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self) {
        self.0.store(polled_task() as usize, Ordering::Relaxed);
    }

    /// Returns whether an owner is noted.
    #[inline]
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Clears the owner; the lock is about to be released.
    pub fn given_up(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Returns the number of the task that the calling thread polls; 0 for none.
#[cold]
#[inline(never)]
pub fn polled_task() -> u64 {
    current::task().map_or(0, |slot| slot.id())
}

/// An object for which a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// A lock; the address of its [`Owner`].
    Lock(usize),
    /// A message; the number of the task that made the sender.
    Message(u64),
}

impl Awaited {
    /// Returns the word of a [`Entry`]: an address is even, and the number of a task becomes odd.
    fn word(self) -> usize {
        match self {
            Self::Lock(address) => address,
            Self::Message(creator) => (creator as usize) << 1 | 1,
        }
    }

    fn from_word(word: usize) -> Self {
        if word & 1 == 0 {
            Self::Lock(word)
        } else {
            Self::Message((word >> 1) as u64)
        }
    }
}

const _: () = assert!(align_of::<Owner>() > 1);

/// An entry of the table: a wait of a task.
struct Entry {
    /// The word of the [`Awaited`]; 0 if the place is free.
    awaited: AtomicUsize,
    /// The number of the task; 0 while the place is taken or freed.
    task: AtomicU64,
    /// The address and length in bytes of the lock's name.
    name: AtomicUsize,
    name_length: AtomicUsize,
}

const PLACES: usize = 1 << 14;

/// The number of places that are tried. If none of them is free, the wait is not noted, but counted
/// as lost.
const ATTEMPTS: usize = 64;

static WAITING: [Entry; PLACES] = [const {
    Entry {
        awaited: AtomicUsize::new(0),
        task: AtomicU64::new(0),
        name: AtomicUsize::new(0),
        name_length: AtomicUsize::new(0),
    }
}; PLACES];

static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of waits that found no free place. A cycle with such a wait is not found.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The number of a place, from 1; 0 for none.
pub type PlaceNumber = u32;

/// Notes that the task polled by the calling thread waits for `awaited`. Does so only if `context`
/// has the task's waker: the wait then has one of the task's registrations.
pub fn waits(awaited: Awaited, name: Option<&str>, context: &Context<'_>) -> PlaceNumber {
    let Some(task) = polled_with(context) else {
        return 0;
    };
    let first = thread_place(PLACES) ^ task as usize;
    let word = awaited.word();
    let free = (0..ATTEMPTS)
        .map(|look| (first + look) % PLACES)
        .find(|&at| {
            let place = &WAITING[at].awaited;
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, word, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        });
    let Some(at) = free else {
        LOST.fetch_add(1, Ordering::Relaxed);
        return 0;
    };
    let place = &WAITING[at];
    let name = name.unwrap_or("");
    place.name.store(name.as_ptr() as usize, Ordering::Relaxed);
    place.name_length.store(name.len(), Ordering::Relaxed);
    place.task.store(task, Ordering::Release);
    at as PlaceNumber + 1
}

/// Continues a wait after another poll. The task may be a different one, if the future was moved to
/// it.
pub fn waits_still(number: PlaceNumber, context: &Context<'_>) {
    let task = polled_with(context).unwrap_or(0);
    let place = &WAITING[number as usize - 1].task;
    if place.load(Ordering::Relaxed) != task {
        place.store(task, Ordering::Release);
    }
}

/// Ends a wait.
pub fn waits_no_more(number: PlaceNumber) {
    let place = &WAITING[number as usize - 1];
    place.task.store(0, Ordering::Relaxed);
    place.awaited.store(0, Ordering::Release);
}

/// Returns the task that the calling thread polls, if `context` has its waker.
fn polled_with(context: &Context<'_>) -> Option<u64> {
    let slot = current::task()?;
    (context.waker().data() == std::ptr::from_ref(slot).cast()).then(|| slot.id())
}

/// A wait, as it was read from the table.
#[derive(Clone, Copy)]
pub struct Wait {
    /// The number of the task that waits.
    pub task: u64,
    /// What it waits for.
    pub awaited: Awaited,
    name: usize,
    name_length: usize,
}

impl Wait {
    /// Returns the name of the lock; empty for an unnamed lock.
    ///
    /// # Safety
    /// The task did nothing from before the wait was read until after.
    pub unsafe fn name(&self) -> &'static str {
        // SAFETY: the task stored both parts of a `&'static str` in one poll. By this function's
        // contract it did nothing while they were read, so they belong together.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.name as *const u8, self.name_length);
            std::str::from_utf8_unchecked(bytes)
        }
    }
}

/// Returns the noted waits. The entry of a task that runs meanwhile may be inconsistent.
pub fn all_waits() -> Vec<Wait> {
    let waits = WAITING.iter().filter_map(|place| {
        let task = place.task.load(Ordering::Acquire);
        (task != 0).then(|| Wait {
            task,
            awaited: Awaited::from_word(place.awaited.load(Ordering::Relaxed)),
            name: place.name.load(Ordering::Relaxed),
            name_length: place.name_length.load(Ordering::Relaxed),
        })
    });
    waits.collect()
}
