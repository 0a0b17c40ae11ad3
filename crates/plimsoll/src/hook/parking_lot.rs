//! Which of parking_lot's locks a thread waits for.
//!
//! parking_lot's threads wait on a word of their own, not of the lock. Near that word, in the same
//! structure, is the address of the lock (the *key*); where exactly depends on the version of
//! parking_lot and on the compiler. But while a thread waits, that is a pointer, and most of what
//! is about there is not: small numbers, and a link that is null for whoever came last. So each
//! wait rules out some places. Of what is left, the place where the key has always been so far is
//! taken, or the only one.
//!
//! In a program without a symbol table, nothing says that a thread waits for one of parking_lot's
//! locks at all. There it is told by what the structure and the lock hold: see [`recognise`].

use super::sites::{CAPACITY, Family, Site};
use crate::contention::WaitKind;
use crate::os::probe;
use crate::os::region::PAGE;
use crate::primitives::{AtomicU32, Ordering};

/// How many words before the futex word the key may be.
const FARTHEST: usize = 5;

/// At which distance it is in parking_lot 0.11 to 0.13.
const USUAL: u32 = 1 << 3;

const EVERYWHERE: u32 = (1 << FARTHEST) - 1;

/// For each place in the code where threads wait, at how many words' distance the key may still be:
/// a bit for each. They differ if there are several versions of parking_lot.
static POSSIBLE: [AtomicU32; CAPACITY + 1] = [const { AtomicU32::new(EVERYWHERE) }; CAPACITY + 1];

/// In place of a function's number, for all that are not known by name.
const NAMELESS: usize = CAPACITY;

/// Nothing in the first 64 KiB is the address of a lock.
const SMALLEST_ADDRESS: usize = 1 << 16;

/// The address of the lock that the calling thread is about to wait for on `word`, its own; `None`
/// as long as that is not known.
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
        // It is laid out as nothing that is known here.
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
    // A `RwLock` has two queues, which the lowest bits tell apart. A `Mutex` may be anywhere.
    Some(if site.kind.is_rwlock() { key & !3 } else { key })
}

/// What is so many words before the futex word that the calling thread is about to wait on, if that
/// can be read.
fn before(word: usize, distance: usize) -> Option<usize> {
    let last = word & !(size_of::<usize>() - 1);
    let address = last.checked_sub(distance * size_of::<usize>())?;
    let page_of = |address: usize| address & !(PAGE - 1);
    // SAFETY: aligned, and in the same page as the thread's own word, or in one that was just found
    // to be readable.
    (page_of(address) == page_of(last) || probe::readable(address))
        .then(|| unsafe { (address as *const usize).read_volatile() })
}

/// Which of parking_lot's locks the calling thread is about to wait for on `word`, if it is one of
/// them, as far as the memory about the word tells: the structure has a *token* for those who wait
/// for a readers-writer lock, and the first byte of the others is their state. Asks the system;
/// only where there are no names.
pub(super) fn recognise(word: usize) -> Option<Site> {
    /// In parking_lot 0.11 to 0.13, what is added to the state of a `RwLock`.
    const WRITER: usize = 8;
    const READER: usize = 16;
    const UPGRADABLE: usize = READER + 4;
    /// The bits of a `Mutex`: that it is locked, and that somebody waits.
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
    // SAFETY: it can be read.
    let state = unsafe { (key as *const u8).read_volatile() };
    if state == MUTEX {
        return Some(site(WaitKind::Mutex));
    }
    // A `Condvar` is a pointer to the mutex that its waiters come from.
    if key % size_of::<usize>() == 0 {
        // SAFETY: it can be read, as can the rest of an aligned word.
        let pointer = unsafe { (key as *const usize).read_volatile() };
        if pointer > u32::MAX as usize && probe::readable(pointer) {
            return Some(site(WaitKind::Condvar));
        }
    }
    // Or it was given back in between.
    (state & !MUTEX == 0).then(|| site(WaitKind::Mutex))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::region;

    /// What is before a futex word, the farthest first, and the word itself.
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
    fn another_place_is_found_by_what_the_others_hold() {
        // Two pointers: a link to who comes next, and the key.
        assert_eq!(learn(1, [1, 0, 0x66_6000, 0x55_5000, 0]), None);
        // Nobody comes next.
        assert_eq!(learn(1, [1, 0, 0, 0x55_5001, 0]), Some(0x55_5001));
        assert_eq!(learn(1, [1, 0, 0x66_6000, 0x77_7000, 0]), Some(0x77_7000));
    }

    #[test]
    fn what_is_laid_out_otherwise_is_not_guessed() {
        assert_eq!(learn(2, [1, 2, 3, 4, 5]), None);
        assert_eq!(learn(CAPACITY + 1, [0, 0x55_5000, 0, 0, 0]), None);
    }

    #[test]
    fn what_begins_in_the_page_before_is_read_as_well() {
        let pages = region::map(3 * PAGE, 0, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        let site = Site {
            kind: WaitKind::Mutex,
            family: Family::ParkingLot,
            number: 3,
        };
        let word = pages + PAGE + 8;
        // SAFETY: the words before it, in the memory just mapped.
        unsafe {
            let words = word as *mut usize;
            for (distance, content) in [(4, 0x55_5000), (3, 0), (2, 0), (1, 0), (5, 0)] {
                words.sub(distance).write(content);
            }
        }
        assert_eq!(lock_of(word, &site), Some(0x55_5000));
        // SAFETY: the first page just mapped.
        let forbidden = unsafe { libc::mprotect(pages as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(forbidden, 0);
        assert_eq!(lock_of(word, &site), None);
    }

    #[test]
    fn locks_are_told_by_what_memory_holds() {
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
