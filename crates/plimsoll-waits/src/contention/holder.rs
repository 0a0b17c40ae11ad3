//! The owners of locks and the threads that wait for them, which distinguish a deadlock from a long
//! wait.
//!
//! A `Once` counts as a lock held by the thread that runs it: no other thread can finish it.
//!
//! A [`Holder`] is part of the lock. A thread that takes the lock stores its thread pointer there,
//! and clears it before it releases the lock, with plain stores. It does so only while rates are
//! set, or after a report of deadlocks was requested ([`plimsoll_tasks::recording::notes_owners`]). A lock
//! that was taken earlier has no known owner, and proves nothing. A thread that does not get the
//! lock at once enters a table of [waiting] threads. Its lock cannot move during the wait, because
//! the thread's stack borrows it.
//!
//! No lock keeps the two consistent while they are read. But if a thread was in the same wait
//! before and after a reading, it did nothing in between: it released no lock. [`crate::leak`]
//! relies on that alone.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::os;

use plimsoll_tasks::recording;

/// The owner of a lock that only one thread can hold.
#[derive(Debug)]
pub struct Holder(AtomicUsize);

impl Holder {
    /// Returns the holder of a lock that is free.
    pub const fn unowned() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Records the calling thread as the owner of the lock, if owners are noted.
    #[inline]
    pub fn taken(&self) {
        if recording::notes_owners() {
            self.note();
        }
    }

    /// Records the calling thread as the owner, whether owners are noted or not.
    #[cold]
    #[inline(never)]
    pub fn note(&self) {
        self.0.store(os::thread_pointer(), Ordering::Relaxed);
    }

    /// Returns whether an owner is noted, in which case the release takes the cold path. False if
    /// nothing was recorded and no report had been requested when the lock was taken.
    ///
    /// A plain read, which the compiler merges with its comparison into one instruction; an atomic
    /// read needs two.
    ///
    /// # Safety
    /// The calling thread owns the lock of which this is part.
    #[inline]
    pub unsafe fn is_noted(&self) -> bool {
        // SAFETY: only the owner of the lock writes here. The calling thread is the owner by this
        // function's contract, so no other thread writes at the same time.
        unsafe { *self.0.as_ptr() != 0 }
    }

    /// Clears the owner; the calling thread is about to release the lock.
    #[inline]
    pub fn given_up(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// An entry of the table of waiting threads.
struct Entry {
    /// The thread pointer of the waiting thread; 0 if the place is free.
    thread: AtomicUsize,
    /// The address of the lock's [`Holder`]; 0 before and after the wait.
    lock: AtomicUsize,
    /// The number of waits that have used this place.
    turn: AtomicU32,
    /// The thread's ID in the system.
    id: AtomicU32,
    /// The address and length in bytes of the lock's name.
    name: AtomicUsize,
    name_length: AtomicUsize,
}

/// The number of threads that can wait at once, a power of two. As many as in the table of waiters.
const PLACES: usize = 1 << 14;

static WAITING: Forgotten<[Entry; PLACES]> = Forgotten::new(
    [const {
        Entry {
            thread: AtomicUsize::new(0),
            lock: AtomicUsize::new(0),
            turn: AtomicU32::new(0),
            id: AtomicU32::new(0),
            name: AtomicUsize::new(0),
            name_length: AtomicUsize::new(0),
        }
    }; PLACES],
);

/// A guard: the calling thread waits for a lock until it is dropped.
pub struct Waiting(Option<&'static Entry>);

/// Waits that found no free place.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of waits that found no free place. Whether they are part of a deadlock is
/// unknown.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Enters the calling thread, which is about to wait without a time limit, as a waiter for the lock
/// that contains `lock`.
pub fn waiting(lock: &Holder, name: Option<&'static str>) -> Waiting {
    let thread = os::thread_pointer();
    let first = os::thread_place(PLACES);
    let free = (0..PLACES).find_map(|look| {
        let place = &WAITING[(first + look) % PLACES];
        let is_free = place.thread.load(Ordering::Relaxed) == 0;
        let taken = is_free
            && place
                .thread
                .compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        taken.then_some(place)
    });
    if free.is_none() {
        LOST.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(place) = free {
        place.id.store(os::thread_id() as u32, Ordering::Relaxed);
        let name = name.unwrap_or("");
        place.name.store(name.as_ptr() as usize, Ordering::Relaxed);
        place.name_length.store(name.len(), Ordering::Relaxed);
        let turn = place.turn.load(Ordering::Relaxed);
        place.turn.store(turn.wrapping_add(1), Ordering::Relaxed);
        // Release: a reader that sees the lock also sees the fields above, and the holders that
        // this thread cleared before.
        place
            .lock
            .store(lock as *const Holder as usize, Ordering::Release);
    }
    Waiting(free)
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            // The release fence orders this store before all that the thread does as the lock's
            // owner.
            place.lock.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
            place.thread.store(0, Ordering::Release);
        }
    }
}

/// A waiting thread, its lock, and the owner of the lock when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The thread pointer.
    pub thread: usize,
    /// The thread's ID in the system.
    pub id: i32,
    /// The address of the lock's [`Holder`]; 0 if the wait is not for a lock.
    pub lock: usize,
    /// The lock's name; empty for an unnamed lock.
    pub lock_name: &'static str,
    /// The thread pointer of the lock's owner; 0 if the lock is free or its owner is unknown.
    pub holder: usize,
}

/// Returns the threads that wait for locks. Each of them was in one wait from before the call of
/// `first` until after the owners were read and `last` had returned. `last` receives the owners;
/// the results of `first` and `last` are returned too. If no thread waits, neither is called, and
/// the result is `None`.
pub fn waits<F, L>(
    first: impl FnOnce() -> F,
    last: impl FnOnce(&[usize]) -> L,
) -> Option<(Vec<Wait>, F, L)> {
    let noted: Vec<Noted> = WAITING.iter().filter_map(Noted::read).collect();
    if noted.is_empty() {
        return None;
    }
    fence(Ordering::SeqCst);
    let first = first();
    let mut memory = vec![0; PAGE_WORDS];
    let found = noted.into_iter().map(|noted| {
        let holder = copied_memory::word(noted.lock, &mut memory);
        (noted, holder)
    });
    let found: Vec<(Noted, usize)> = found.collect();
    let holders: Vec<usize> = found.iter().map(|&(_, holder)| holder).collect();
    let last = last(&holders);
    fence(Ordering::SeqCst);
    let still = found.into_iter().filter(|(noted, _)| noted.is_so_still());
    let waits = still.map(|(noted, holder)| Wait {
        thread: noted.thread,
        id: noted.id as i32,
        lock: noted.lock,
        // SAFETY: `is_so_still` showed that all fields were read during one wait, so name and
        // length are the parts of one `&'static str`.
        lock_name: unsafe {
            let bytes = std::slice::from_raw_parts(noted.name as *const u8, noted.name_length);
            std::str::from_utf8_unchecked(bytes)
        },
        holder,
    });
    Some((waits.collect(), first, last))
}

/// The contents of a place, as they were read.
struct Noted {
    place: &'static Entry,
    thread: usize,
    lock: usize,
    turn: u32,
    id: u32,
    name: usize,
    name_length: usize,
}

impl Noted {
    fn read(place: &'static Entry) -> Option<Self> {
        let lock = place.lock.load(Ordering::Acquire);
        if lock == 0 {
            return None;
        }
        Some(Self {
            place,
            thread: place.thread.load(Ordering::Relaxed),
            lock,
            turn: place.turn.load(Ordering::Relaxed),
            id: place.id.load(Ordering::Relaxed),
            name: place.name.load(Ordering::Relaxed),
            name_length: place.name_length.load(Ordering::Relaxed),
        })
    }

    fn is_so_still(&self) -> bool {
        // Read first: if `lock` belongs to a later wait, acquire makes that wait's turn visible,
        // too.
        self.place.lock.load(Ordering::Acquire) == self.lock
            && self.place.turn.load(Ordering::Relaxed) == self.turn
            && self.place.thread.load(Ordering::Relaxed) == self.thread
    }
}

/// Prepares the table. Called once, before `main`.
pub(super) fn prepare() {
    WAITING.prepare();
}

/// Empties the table in the child of a fork, where no other thread waits.
pub(super) fn after_fork_in_child() {
    if WAITING.is_forgotten() {
        return;
    }
    for place in WAITING.iter() {
        // A read does not copy an untouched page.
        if place.thread.load(Ordering::Relaxed) != 0 {
            place.lock.store(0, Ordering::Relaxed);
            place.thread.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Returns the waits of a thread, as `waits` reads them.
    fn of_thread(thread: usize) -> Vec<Wait> {
        let mut waits = waits(|| (), |_| ()).map_or(Vec::new(), |(waits, ..)| waits);
        waits.retain(|wait| wait.thread == thread);
        waits
    }

    #[test]
    fn a_wait_is_listed_with_the_owner_until_it_is_over() {
        let me = os::thread_pointer();
        let lock = Holder::unowned();
        assert_eq!(of_thread(me), []);
        let waiting = waiting(&lock, Some("a lock"));
        let expected = |holder| Wait {
            thread: me,
            id: os::thread_id(),
            lock: std::ptr::from_ref(&lock) as usize,
            lock_name: "a lock",
            holder,
        };
        assert_eq!(of_thread(me), [expected(0)]);
        lock.note();
        assert_eq!(of_thread(me), [expected(me)]);
        lock.given_up();
        assert_eq!(of_thread(me), [expected(0)]);
        drop(waiting);
        assert_eq!(of_thread(me), []);
    }

    #[test]
    fn a_lock_that_is_gone_has_no_holder() {
        let memory = os::region::map(os::region::PAGE);
        let page = memory.unwrap();
        // SAFETY: the page was just mapped and is zero: a holder without owner.
        let lock = unsafe { &*(page as *const Holder) };
        lock.note();
        let waiting = waiting(lock, None);
        let holder = || of_thread(os::thread_pointer())[0].holder;
        assert_eq!(holder(), os::thread_pointer());
        // SAFETY: unmaps the page mapped above; only the holder's address is used afterwards.
        unsafe { os::region::unmap(page as usize, os::region::PAGE) };
        assert_eq!(holder(), 0);
        drop(waiting);
    }

    /// Threads wait for locks in turn, in places that they take over from one another. The fields
    /// of each wait that is read must belong together.
    #[test]
    fn a_reading_belongs_to_one_wait() {
        const NAMES: [&str; 3] = ["the first", "the second lock", "3rd"];
        let done = AtomicBool::new(false);
        let locks: [Holder; 3] = [const { Holder::unowned() }; 3];
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (done, locks) = (&done, &locks);
                scope.spawn(move || {
                    // Each thread holds one lock, and waits for the next.
                    locks[number].note();
                    while !done.load(Ordering::Relaxed) {
                        drop(waiting(&locks[(number + 1) % 3], Some(NAMES[number])));
                    }
                    locks[number].given_up();
                });
            }
            let holder = |number: usize| locks[number % 3].0.load(Ordering::Relaxed);
            while (0..3).any(|number| holder(number) == 0) {
                std::thread::yield_now();
            }
            let start = std::time::Instant::now();
            let mut seen = 0;
            while seen < 100 && start.elapsed().as_secs() < 60 {
                let found = waits(|| (), |_| ());
                for wait in found.map_or(Vec::new(), |(waits, ..)| waits) {
                    if let Some(number) = NAMES.iter().position(|&name| name == wait.lock_name) {
                        let threads = (wait.thread, wait.holder);
                        assert_eq!(threads, (holder(number), holder(number + 1)));
                        seen += 1;
                    }
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(seen >= 100, "{seen}");
        });
    }
}
