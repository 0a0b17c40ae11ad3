//! Which of parking_lot's locks a thread waits for.
//!
//! parking_lot's threads wait on a word of their own, not of the lock. Near that word, in the same
//! structure, is the address of the lock (the *key*); where exactly depends on the version of
//! parking_lot and on the compiler. But while a thread waits, that is a pointer, and most of what
//! is about there is not: small numbers, and a link that is null for whoever came last. So each
//! wait rules out some places. Of what is left, the place where the key has always been so far is
//! taken, or the only one.

use super::sites::{CAPACITY, Site};
use crate::os::region::PAGE;
use crate::primitives::{AtomicU32, Ordering};

/// How many words before the futex word the key may be.
const FARTHEST: usize = 5;

/// At which distance it is in parking_lot 0.11 to 0.13.
const USUAL: u32 = 1 << 3;

const EVERYWHERE: u32 = (1 << FARTHEST) - 1;

/// For each place in the code where threads wait, at how many words' distance the key may still be:
/// a bit for each. They differ if there are several versions of parking_lot.
static POSSIBLE: [AtomicU32; CAPACITY] = [const { AtomicU32::new(EVERYWHERE) }; CAPACITY];

/// Nothing in the first 64 KiB is the address of a lock.
const SMALLEST_ADDRESS: usize = 1 << 16;

/// The address of the lock that the calling thread is about to wait for on `word`, its own; `None`
/// as long as that is not known.
pub(super) fn lock_of(word: usize, site: &Site) -> Option<usize> {
    let possible = POSSIBLE.get(site.number)?;
    let last = word & !(size_of::<usize>() - 1);
    let before = |distance: usize| -> Option<usize> {
        let address = last.checked_sub(distance * size_of::<usize>())?;
        // SAFETY: aligned, and in the same page as the word that the thread is about to wait on,
        // which is its own.
        (address & !(PAGE - 1) == last & !(PAGE - 1))
            .then(|| unsafe { (address as *const usize).read_volatile() })
    };
    let mut seen = 0;
    for distance in 1..=FARTHEST {
        if before(distance).is_some_and(|value| value >= SMALLEST_ADDRESS) {
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
    // The lowest bits tell queues of one lock apart.
    before(left.trailing_zeros() as usize + 1).map(|key| key & !3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::WaitKind;
    use crate::hook::sites::Family;

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
        assert_eq!(learn(1, [1, 0, 0, 0x55_5001, 0]), Some(0x55_5000));
        assert_eq!(learn(1, [1, 0, 0x66_6000, 0x77_7000, 0]), Some(0x77_7000));
    }

    #[test]
    fn what_is_laid_out_otherwise_is_not_guessed() {
        assert_eq!(learn(2, [1, 2, 3, 4, 5]), None);
        assert_eq!(learn(CAPACITY, [0, 0x55_5000, 0, 0, 0]), None);
    }
}
