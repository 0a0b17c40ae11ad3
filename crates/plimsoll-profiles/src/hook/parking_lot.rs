//! Identifies the parking_lot lock for which a thread waits.
//!
//! parking_lot's threads wait on a word in their own memory, not in the lock. Near that word, in
//! the same structure, lies the address of the lock (the *key*); its place depends on the version
//! of parking_lot and on the compiler. While a thread waits, the key is a pointer, and most words
//! around it are not: they are small numbers, and a link that is null for the last waiter. So each
//! wait rules out some places. The lock is then read from the usual place if it remains, or from
//! the only one that remains.
//!
//! In a program without a symbol table, no name shows that a thread waits for one of parking_lot's
//! locks. In that case, the contents of the structure and of the lock identify it: see
//! [`recognise`].

use plimsoll_process::probe;
use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::primitives::{AtomicU32, Ordering};

use super::sites::{CAPACITY, Family, Site};
use plimsoll_waits::contention::WaitKind;

/// The maximum distance of the key before the futex word, in words.
const FARTHEST: usize = 5;

/// The distance of the key in parking_lot 0.11 to 0.13, as a bit.
const USUAL: u32 = 1 << 3;

const EVERYWHERE: u32 = (1 << FARTHEST) - 1;

/// The possible distances of the key in words, one bit each, for each function in which threads
/// wait. The functions differ if the program contains several versions of parking_lot.
static POSSIBLE: [AtomicU32; CAPACITY + 1] = [const { AtomicU32::new(EVERYWHERE) }; CAPACITY + 1];

/// The number of all functions without a known name.
const NAMELESS: usize = CAPACITY;

/// No lock has an address in the first 64 KiB.
const SMALLEST_ADDRESS: usize = 1 << 16;

/// Returns the address of the lock for which the calling thread is about to wait on `word`, in its
/// own memory; `None` while that address is unknown.
pub(super) fn lock_of(word: usize, site: &Site) -> Option<usize> {
    let possible = POSSIBLE.get(site.number)?;
    let mut seen = 0;
    for distance in 1..=FARTHEST {
        if before(word, distance).is_some_and(|value| value >= SMALLEST_ADDRESS) {
            seen |= 1 << (distance - 1);
        }
    }
    let mut left = possible.load(Ordering::Relaxed) & seen;
    if left == 0 {
        // The structure has an unknown layout.
        possible.store(EVERYWHERE, Ordering::Relaxed);
        return None;
    }
    possible.fetch_and(left, Ordering::Relaxed);
    if left & USUAL != 0 {
        left = USUAL;
    } else if !left.is_power_of_two() {
        return None;
    }
    let key = before(word, left.trailing_zeros() as usize + 1)?;
    // A `RwLock` has two queues, which the lowest bits distinguish. A `Mutex` may have any address.
    Some(if site.kind.is_rwlock() { key & !3 } else { key })
}

/// Reads the word at `distance` words before the futex word on which the calling thread is about to
/// wait; `None` if it cannot be read.
fn before(word: usize, distance: usize) -> Option<usize> {
    let last = word & !(size_of::<usize>() - 1);
    let address = last.checked_sub(distance * size_of::<usize>())?;
    let page_of = |address: usize| address & !(PAGE - 1);
    // SAFETY: the address is aligned, and lies in the page of the thread's own word, or in a page
    // that was just found to be readable.
    (page_of(address) == page_of(last) || probe::readable(address))
        .then(|| unsafe { (address as *const usize).read_volatile() })
}

/// Recognizes the parking_lot lock for which the calling thread is about to wait on `word`, if it
/// is one, by the memory around the word. The structure holds a *token* for waiters of a
/// readers-writer lock; in all other locks, the first byte is the state. Makes system calls; only
/// for programs without names.
pub(super) fn recognise(word: usize) -> Option<Site> {
    /// Tokens in parking_lot 0.11 to 0.13: the amount that a waiter adds to the state of a
    /// `RwLock`.
    const WRITER: usize = 8;
    const READER: usize = 16;
    const UPGRADABLE: usize = READER + 4;
    /// The bits of a `Mutex`: locked, and with waiters.
    const MUTEX: u8 = 3;

    let site = |kind| Site {
        kind,
        family: Family::ParkingLot,
        number: NAMELESS,
    };
    let key = lock_of(word, &site(WaitKind::Other))?;
    let token = (1..=FARTHEST).find_map(|distance| match before(word, distance)? {
        WRITER => Some(WaitKind::RwLockWrite),
        READER | UPGRADABLE => Some(WaitKind::RwLockRead),
        _ => None,
    });
    if let Some(kind) = token {
        return Some(site(kind));
    }
    if !probe::readable(key) {
        return None;
    }
    // SAFETY: `probe::readable` has just found the byte to be readable.
    let state = unsafe { (key as *const u8).read_volatile() };
    if state == MUTEX {
        return Some(site(WaitKind::Mutex));
    }
    // A `Condvar` is a pointer to its waiters' mutex.
    if key % size_of::<usize>() == 0 {
        // SAFETY: the first byte is readable, and so is the rest of an aligned word.
        let pointer = unsafe { (key as *const usize).read_volatile() };
        if pointer > u32::MAX as usize && probe::readable(pointer) {
            return Some(site(WaitKind::Condvar));
        }
    }
    // Or its owner released the mutex in between.
    (state & !MUTEX == 0).then(|| site(WaitKind::Mutex))
}

#[cfg(test)]
mod tests {
    use plimsoll_sys::os::region;

    use super::*;

    /// The words before a futex word, the farthest first, and the word itself.
    #[repr(C, align(64))]
    struct Thread([usize; FARTHEST + 1]);

    fn learn(number: usize, before: [usize; FARTHEST]) -> Option<usize> {
        let [a, b, c, d, e] = before;
        let thread = Thread([a, b, c, d, e, 0]);
        let site = Site {
            kind: WaitKind::Mutex,
            family: Family::ParkingLot,
            number,
        };
        lock_of(&raw const thread.0[FARTHEST] as usize, &site)
    }

    #[test]
    fn the_usual_place_is_taken_at_once() {
        assert_eq!(
            learn(0, [0x7f00_0000, 0x55_5000, 0x66_6000, 1, 0]),
            Some(0x55_5000)
        );
    }

    #[test]
    fn the_key_is_found_by_the_contents_of_other_words() {
        // Two pointers: a link to the next waiter, and the key.
        assert_eq!(learn(1, [1, 0, 0x66_6000, 0x55_5000, 0]), None);
        // No next waiter.
        assert_eq!(learn(1, [1, 0, 0, 0x55_5001, 0]), Some(0x55_5001));
        assert_eq!(learn(1, [1, 0, 0x66_6000, 0x77_7000, 0]), Some(0x77_7000));
    }

    #[test]
    fn an_unknown_layout_is_not_guessed() {
        assert_eq!(learn(2, [1, 2, 3, 4, 5]), None);
        assert_eq!(learn(CAPACITY + 1, [0, 0x55_5000, 0, 0, 0]), None);
    }

    #[test]
    fn an_object_that_begins_in_the_page_before_is_read() {
        let pages = region::map(3 * PAGE).unwrap();
        let site = Site {
            kind: WaitKind::Mutex,
            family: Family::ParkingLot,
            number: 3,
        };
        let word = pages + PAGE + 8;
        // SAFETY: the words before `word` lie in the memory that was just mapped.
        unsafe {
            let words = word as *mut usize;
            for (distance, content) in [(4, 0x55_5000), (3, 0), (2, 0), (1, 0), (5, 0)] {
                words.sub(distance).write(content);
            }
        }
        assert_eq!(lock_of(word, &site), Some(0x55_5000));
        // SAFETY: the address is the first page of the mapping made above.
        let forbidden = unsafe { libc::mprotect(pages as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(forbidden, 0);
        assert_eq!(lock_of(word, &site), None);
    }

    #[test]
    fn locks_are_recognised_by_the_contents_of_memory() {
        let recognised = |[a, b, c, d, e]: [usize; FARTHEST]| {
            let thread = Thread([a, b, c, d, e, 0]);
            recognise(&raw const thread.0[FARTHEST] as usize).map(|site| site.kind)
        };
        let address = |of: &usize| std::ptr::from_ref(of) as usize;
        let mutex = 3;
        let condvar = address(&mutex);
        let once = 12;
        for (lock, kind) in [
            (&mutex, Some(WaitKind::Mutex)),
            (&condvar, Some(WaitKind::Condvar)),
            (&once, None),
        ] {
            assert_eq!(recognised([0, address(lock), 0, 0, 0]), kind);
        }
        for (token, kind) in [
            (8, WaitKind::RwLockWrite),
            (16, WaitKind::RwLockRead),
            (20, WaitKind::RwLockRead),
        ] {
            assert_eq!(recognised([0, address(&once), 0, 0, token]), Some(kind));
        }
        assert_eq!(recognised([0, usize::MAX << 20, 0, 0, 0]), None);
        assert_eq!(recognised([0; FARTHEST]), None);
    }
}
