//! Which task owns a lock of [`crate::sync::tokio`], and which tasks wait for one.
//!
//! Both are noted only while [`contention::notes_owners`]. An [`Owner`] is part of the lock: a task
//! that takes all of the lock stores its number there, and the guard's drop clears it. A task that
//! has to wait takes a *place* in a table until its wait is over.
//!
//! # What a reader may conclude
//! The reader takes a cut of all tasks, reads the table and the owners, and takes another cut. A
//! task that was suspended in both, with as many polls begun, did nothing in between. If all of its
//! registrations are those of its waits in the table, only the grant of one of these locks wakes
//! it.
//!
//! An owner is the task that made the guard. A guard can be sent to another task or stored where
//! any code can drop it, and Rust calls nothing when a value is moved. So no owner is certain to
//! have the guard still, and [`crate::leak`] reports a circle of tasks as probable, not as proved.

use std::task::Context;

use super::current;
use crate::contention;
use crate::os::thread_place;
use crate::primitives::{AtomicU64, AtomicUsize, Ordering};

/// The task that made the guard of all of a lock; 0 if there is no such guard, no task made it, or
/// owners were not noted then.
#[derive(Debug)]
pub(crate) struct Owner(AtomicUsize);

impl Owner {
    pub(crate) const fn none() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The task that the calling thread polls, if any, has all of the lock: notes that, if owners
    /// are noted.
    #[inline]
    pub(crate) fn taken(&self) {
        if contention::notes_owners() {
            self.note();
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self) {
        let task = current::task().map_or(0, |slot| slot.id());
        self.0.store(task as usize, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The lock is about to be given up.
    pub(crate) fn given_up(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A wait of a task for a lock.
struct Place {
    /// Where the lock's [`Owner`] is; 0 if the place is free.
    lock: AtomicUsize,
    /// The number of the task; 0 while the place changes hands.
    task: AtomicU64,
    /// What the lock is called, of so many bytes.
    name: AtomicUsize,
    name_length: AtomicUsize,
}

const PLACES: usize = 1 << 14;

/// How many places are tried. If none of them is free, the wait is not noted, and counted.
const ATTEMPTS: usize = 64;

static WAITING: [Place; PLACES] = [const {
    Place {
        lock: AtomicUsize::new(0),
        task: AtomicU64::new(0),
        name: AtomicUsize::new(0),
        name_length: AtomicUsize::new(0),
    }
}; PLACES];

static LOST: AtomicU64 = AtomicU64::new(0);

/// How many waits there was no place for: a circle that they are part of is not found.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The number of a place, from 1. 0 is none.
pub(crate) type PlaceNumber = u32;

/// Notes that the task which the calling thread polls waits for the lock of that owner, if it is
/// polled with the task's own waker: then the wait has one of the task's registrations.
pub(crate) fn waits(lock: &Owner, name: Option<&str>, context: &Context<'_>) -> PlaceNumber {
    let Some(task) = polled_with(context) else {
        return 0;
    };
    let first = thread_place(PLACES) ^ task as usize;
    let address = std::ptr::from_ref(lock) as usize;
    let free = (0..ATTEMPTS)
        .map(|look| (first + look) % PLACES)
        .find(|&at| {
            let place = &WAITING[at].lock;
            place.load(Ordering::Relaxed) == 0
                && place
                    .compare_exchange(0, address, Ordering::Acquire, Ordering::Relaxed)
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

/// The wait goes on, after a poll by a task that may be another one: the future was moved to it.
pub(crate) fn waits_still(number: PlaceNumber, context: &Context<'_>) {
    let task = polled_with(context).unwrap_or(0);
    let place = &WAITING[number as usize - 1].task;
    if place.load(Ordering::Relaxed) != task {
        place.store(task, Ordering::Release);
    }
}

/// The wait is over.
pub(crate) fn waits_no_more(number: PlaceNumber) {
    let place = &WAITING[number as usize - 1];
    place.task.store(0, Ordering::Relaxed);
    place.lock.store(0, Ordering::Release);
}

/// The task that the calling thread polls, if `context` has its waker.
fn polled_with(context: &Context<'_>) -> Option<u64> {
    let slot = current::task()?;
    (context.waker().data() == std::ptr::from_ref(slot).cast()).then(|| slot.id())
}

/// A wait as the table has it.
#[derive(Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) task: u64,
    /// Where the lock's [`Owner`] is.
    pub(crate) lock: usize,
    name: usize,
    name_length: usize,
}

impl Wait {
    /// What the lock is called; empty if it has no name.
    ///
    /// # Safety
    /// The task did nothing from before the wait was read until after.
    pub(crate) unsafe fn name(&self) -> &'static str {
        // SAFETY: the task wrote both in one poll, from a name that is static, and did not change
        // them while they were read.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.name as *const u8, self.name_length);
            std::str::from_utf8_unchecked(bytes)
        }
    }
}

/// The waits that are noted. Of a task that does something meanwhile, anything may be in it.
pub(crate) fn all_waits() -> Vec<Wait> {
    let waits = WAITING.iter().filter_map(|place| {
        let task = place.task.load(Ordering::Acquire);
        (task != 0).then(|| Wait {
            task,
            lock: place.lock.load(Ordering::Relaxed),
            name: place.name.load(Ordering::Relaxed),
            name_length: place.name_length.load(Ordering::Relaxed),
        })
    });
    waits.collect()
}
