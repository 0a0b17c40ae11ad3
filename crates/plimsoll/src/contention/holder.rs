//! Which thread holds a lock, and which waits for it: what tells a deadlock from a long wait.
//!
//! What is done once is a lock here, too, that is held by who does it: no other thread can finish
//! it.
//!
//! A [`Holder`] is part of the lock. A thread that takes the lock stores its thread pointer there,
//! and clears it before it gives the lock up, with plain stores; but only while rates are set or a
//! report of deadlocks was asked for ([`super::notes_owners`]). So a lock that was taken before has
//! no known owner, and proves nothing. Who does not get the lock at once enters a table of those who are [waiting], on
//! whose stacks their locks stay where they are.
//!
//! Nobody keeps the two together while they are read. But a thread that was waiting for a lock
//! before something was read and still is, in the same wait, afterwards, has not done anything
//! in between: it has not given up what it held. That is all that [`crate::leak`] builds on.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::os;
use crate::os::copied_memory::{self, PAGE_WORDS};
use crate::os::forgotten::Forgotten;

/// Which thread holds a lock that only one can hold.
#[derive(Debug)]
pub(crate) struct Holder(AtomicUsize);

impl Holder {
    pub(crate) const fn nobody() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The calling thread has the lock: notes that, if owners are noted.
    #[inline]
    pub(crate) fn taken(&self) {
        if super::notes_owners() {
            self.note();
        }
    }

    /// The same, whether owners are noted or not.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&self) {
        self.0.store(os::thread_pointer(), Ordering::Relaxed);
    }

    /// Whether an owner is noted: more is to be done than to give the lock up. False where nothing
    /// was recorded and no report was asked for when the lock was taken.
    ///
    /// A plain read, which is one instruction with its comparison; that of an atomic is two.
    ///
    /// # Safety
    /// The calling thread owns the lock that this is part of.
    #[inline]
    pub(crate) unsafe fn is_noted(&self) -> bool {
        // SAFETY: only the owner of the lock writes here, which the calling thread is: no other
        // thread writes at the same time.
        unsafe { *self.0.as_ptr() != 0 }
    }

    /// The calling thread is about to give it up.
    #[inline]
    pub(crate) fn given_up(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A thread that waits.
struct Place {
    /// Which; 0 if the place is free.
    thread: AtomicUsize,
    /// Where the lock's [`Holder`] is; 0 if it does not wait (yet, or any more).
    lock: AtomicUsize,
    /// How many waits there were in this place.
    turn: AtomicU32,
    /// The system's number of the thread.
    id: AtomicU32,
    /// What the lock is called, of so many bytes.
    name: AtomicUsize,
    name_length: AtomicUsize,
}

/// So many threads can wait at once, a power of two: as many as elsewhere.
const PLACES: usize = 1 << 14;

static WAITING: Forgotten<[Place; PLACES]> = Forgotten::new(
    [const {
        Place {
            thread: AtomicUsize::new(0),
            lock: AtomicUsize::new(0),
            turn: AtomicU32::new(0),
            id: AtomicU32::new(0),
            name: AtomicUsize::new(0),
            name_length: AtomicUsize::new(0),
        }
    }; PLACES],
);

/// While it lives, the calling thread waits for a lock.
pub(crate) struct Waiting(Option<&'static Place>);

/// Waits that there was no place for.
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many waits there was no place for: whether they are part of a deadlock is not known.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The calling thread is about to wait, as long as it takes, for the lock that has this holder.
pub(crate) fn waiting(lock: &Holder, name: Option<&'static str>) -> Waiting {
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
        // After all that is noted here, and after the holders that this thread cleared.
        place
            .lock
            .store(lock as *const Holder as usize, Ordering::Release);
    }
    Waiting(free)
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            // Before anything that the thread does with the lock.
            place.lock.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
            place.thread.store(0, Ordering::Release);
        }
    }
}

/// A thread that waits for a lock, and who had that when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// Its thread pointer, and the system's number.
    pub(crate) thread: usize,
    pub(crate) id: i32,
    /// Of the lock's name; empty if it has none.
    pub(crate) lock_name: &'static str,
    /// The thread pointer of the lock's owner. 0 if it has none, or none is known.
    pub(crate) holder: usize,
}

/// The threads that wait for locks, each of them from before `first` was called until after
/// everything here was read: who holds the locks, and then what `last` reads of these waits. What
/// `first` returns is handed on; if nobody waits, neither is called, and there is nothing.
pub(crate) fn waits<F, L>(
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
        // SAFETY: what was noted is of one wait, so these are the parts of one string.
        lock_name: unsafe {
            let bytes = std::slice::from_raw_parts(noted.name as *const u8, noted.name_length);
            std::str::from_utf8_unchecked(bytes)
        },
        holder,
    });
    Some((waits.collect(), first, last))
}

/// What a place says.
struct Noted {
    place: &'static Place,
    thread: usize,
    lock: usize,
    turn: u32,
    id: u32,
    name: usize,
    name_length: usize,
}

impl Noted {
    fn read(place: &'static Place) -> Option<Self> {
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
        // First: if it is that of a later wait, the turn is seen to be that one's, too.
        self.place.lock.load(Ordering::Acquire) == self.lock
            && self.place.turn.load(Ordering::Relaxed) == self.turn
            && self.place.thread.load(Ordering::Relaxed) == self.thread
    }
}

/// Once, before `main`.
pub(super) fn prepare() {
    WAITING.prepare();
}

/// In the child of a fork, the other threads do not wait.
pub(super) fn after_fork_in_child() {
    if WAITING.is_forgotten() {
        return;
    }
    for place in WAITING.iter() {
        // Reading leaves untouched pages as they are.
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

    /// The waits of a thread, as they are read.
    fn of_thread(thread: usize) -> Vec<Wait> {
        let mut waits = waits(|| (), |_| ()).map_or(Vec::new(), |(waits, ..)| waits);
        waits.retain(|wait| wait.thread == thread);
        waits
    }

    #[test]
    fn a_wait_is_there_until_it_is_over_with_who_holds_the_lock() {
        let me = os::thread_pointer();
        let lock = Holder::nobody();
        assert_eq!(of_thread(me), []);
        let waiting = waiting(&lock, Some("a lock"));
        let expected = |holder| Wait {
            thread: me,
            id: os::thread_id(),
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
        let memory = os::region::map(os::region::PAGE, 0, libc::PROT_READ | libc::PROT_WRITE);
        let page = memory.unwrap();
        // SAFETY: the page just mapped, which is zeros: a holder that is nobody.
        let lock = unsafe { &*(page as *const Holder) };
        lock.note();
        let waiting = waiting(lock, None);
        let holder = || of_thread(os::thread_pointer())[0].holder;
        assert_eq!(holder(), os::thread_pointer());
        // SAFETY: the page just mapped; the holder is not used any more but by its address.
        unsafe { libc::munmap(page as *mut _, os::region::PAGE) };
        assert_eq!(holder(), 0);
        drop(waiting);
    }

    /// Threads wait for locks one after the other, in places that they take from one another: what
    /// is read belongs together.
    #[test]
    fn what_is_read_is_of_one_wait() {
        const NAMES: [&str; 3] = ["the first", "the second lock", "3rd"];
        let done = AtomicBool::new(false);
        let locks: [Holder; 3] = [const { Holder::nobody() }; 3];
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (done, locks) = (&done, &locks);
                scope.spawn(move || {
                    // Each holds one of them, and waits for the next.
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
