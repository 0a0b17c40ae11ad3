//! Which of parking_lot's locks a thread waits for.
//!
//! parking_lot's threads wait on a word of their own, not of the lock. Near that word, in the same
//! structure, is the address of the lock (the *key*); where exactly depends on the version of
//! parking_lot and on the compiler. But while a thread waits, that is the one word about there that
//! is a pointer: the others are small numbers and a link that is null for whoever came last. So
//! each wait rules out some places, and mostly all but one at once.

use super::sites::{CAPACITY, Site};
use crate::os::region::PAGE;
use crate::primitives::{AtomicU32, Ordering};

/// How many words before the futex word the key may be.
const FARTHEST: usize = 5;

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
    left &= possible.load(Ordering::Relaxed);
    if !left.is_power_of_two() {
        return None;
    }
    // The lowest bits tell queues of one lock apart.
    before(left.trailing_zeros() as usize + 1).map(|key| key & !3)
}
