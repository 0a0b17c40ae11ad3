//! The account of a lock for which tasks wait.
//!
//! At a release, each waiter is owed the time since the last release, or since its own start if
//! that is later. So there are two sorts of waiters. The *old* were there at the last release and
//! are all owed the same. For the *new*, only their number and the sum of their starts matter. A
//! release owes
//!
//! ```text
//! old * (now - last release) + new * now - sum of the beginnings of the new
//! ```
//!
//! and makes all of them old. A waiter that leaves is old if it began before the last release. Its
//! wait up to that release is already charged. The sum of the debts therefore equals the sum of the
//! payments, to the nanosecond.
//!
//! The account has a lock, which is taken only if there are waiters, and held for a few
//! instructions. The primitives that use it also take a lock whenever there are waiters. This code
//! is not a hook: it never runs inside other code.

use std::sync::{MutexGuard, PoisonError};

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU32, Mutex, Ordering};

use super::Awaited;
use crate::contention::wait::Release;
use crate::contention::{WaitKind, suspend};
use plimsoll_tasks::task::lock_owners::Owner;

/// The waits of tasks for one lock, and its owner.
pub struct Account {
    name: Option<&'static str>,
    owner: Owner,
    /// Written only with the lock held.
    waiting: AtomicU32,
    sums: Mutex<Sums>,
}

struct Sums {
    /// The number of waiters that began after the last release.
    new: u32,
    /// The sum of their starts, modulo 2^64.
    new_began: u64,
    /// The time of the last release that had waiters.
    released: u64,
    /// The latest of all times used here. They never go back, even if the clocks of two processors
    /// disagree.
    latest: u64,
    /// The kind of the first of the waiters.
    kind: WaitKind,
}

impl Account {
    /// Returns the account of a lock that may have a name.
    pub const fn new(name: Option<&'static str>) -> Self {
        Self {
            name,
            owner: Owner::none(),
            waiting: AtomicU32::new(0),
            sums: Mutex::new(Sums {
                new: 0,
                new_began: 0,
                released: 0,
                latest: 0,
                kind: WaitKind::Other,
            }),
        }
    }

    /// Returns the name that `new` received.
    pub const fn given_name(&self) -> Option<&'static str> {
        self.name
    }

    /// Records that the calling thread, or the task that it polls, has all of the lock.
    #[inline]
    pub fn taken(&self) {
        self.owner.taken();
    }

    /// Returns whether a task waits, or may have waited a moment ago, or an owner is noted.
    #[inline]
    pub fn is_in_use(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0 || self.owner.is_noted()
    }

    /// Charges the calling thread for a release of the lock or a part of it, which must follow.
    /// Returns the charge.
    pub fn release(&self) -> Option<Release> {
        self.owner.given_up();
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.with(|waiting, sums| {
            if *waiting == 0 {
                return None;
            }
            let now = sums.later(clock::now(), 0);
            let since = now.wrapping_sub(sums.released);
            let old = u64::from(*waiting - sums.new).wrapping_mul(since);
            let new = u64::from(sums.new)
                .wrapping_mul(now)
                .wrapping_sub(sums.new_began);
            (sums.new, sums.new_began, sums.released) = (0, 0, now);
            Some(Release::new(sums.kind, old.wrapping_add(new)))
        })
    }

    fn with<R>(&self, change: impl FnOnce(&mut u32, &mut Sums) -> R) -> R {
        // Waits for the account's lock are not the program's.
        let _suspended = suspend();
        let mut sums: MutexGuard<'_, Sums> =
            self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = self.waiting.load(Ordering::Relaxed);
        let result = change(&mut waiting, &mut sums);
        self.waiting.store(waiting, Ordering::Relaxed);
        result
    }
}

impl Sums {
    /// Returns `time`, or the latest time so far plus `past` if that is later.
    fn later(&mut self, time: u64, past: u64) -> u64 {
        self.latest = time.max(self.latest + past);
        self.latest
    }
}

impl Awaited for Account {
    fn name(&self) -> Option<&'static str> {
        self.name
    }

    fn owner(&self) -> Option<&Owner> {
        Some(&self.owner)
    }

    fn enter(&self, kind: WaitKind) -> u64 {
        self.with(|waiting, sums| {
            // Later than all earlier releases.
            let start = sums.later(clock::now(), 1);
            if *waiting == 0 {
                sums.kind = kind;
            }
            *waiting += 1;
            sums.new += 1;
            sums.new_began = sums.new_began.wrapping_add(start);
            start
        })
    }

    fn leave(&self, start: u64) -> Option<u64> {
        self.with(|waiting, sums| {
            *waiting -= 1;
            if start > sums.released {
                sums.new -= 1;
                sums.new_began = sums.new_began.wrapping_sub(start);
                None
            } else {
                Some(sums.released)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    const KIND: WaitKind = WaitKind::RwLockRead;

    fn blame(account: &Account) -> u64 {
        account
            .release()
            .map_or(0, |release| release.into_parts().1)
    }

    #[test]
    fn a_release_without_waiters_is_charged_nothing() {
        let account = Account::new(None);
        assert!(account.release().is_none());
        assert!(!account.is_in_use());
        let start = account.enter(KIND);
        assert!(account.is_in_use());
        assert_eq!(account.leave(start), None);
        assert!(account.release().is_none());
        assert!(!account.is_in_use());
    }

    #[test]
    fn each_is_waited_for_since_it_began_or_since_the_last_release() {
        let account = Account::new(None);
        let first = account.enter(KIND);
        let second = account.enter(WaitKind::RwLockWrite);
        let (kind, blamed) = account.release().unwrap().into_parts();
        let released = account.sums.lock().unwrap().released;
        // The charge has the kind of the first waiter.
        assert_eq!(kind, KIND);
        assert_eq!(blamed, 2 * released - first - second);
        let third = account.enter(KIND);
        assert!(third > released);
        let blamed = blame(&account);
        let again = account.sums.lock().unwrap().released;
        assert_eq!(blamed, 2 * (again - released) + (again - third));
        for start in [first, second, third] {
            assert_eq!(account.leave(start), Some(again));
        }
        let fourth = account.enter(KIND);
        assert_eq!(account.leave(fourth), None);
        assert_eq!(account.sums.lock().unwrap().new_began, 0);
    }

    #[test]
    fn time_does_not_go_back() {
        let account = Account::new(None);
        let far = clock::now() + 3_600_000_000_000;
        account.sums.lock().unwrap().latest = far;
        let start = account.enter(KIND);
        assert_eq!(start, far + 1);
        assert_eq!(blame(&account), 0);
        assert_eq!(account.leave(start), Some(start));
        assert!(account.enter(KIND) > start);
    }

    /// Four threads enter, up to three waits each at a time, and leave and release in an irregular
    /// order. The sum of the charges equals the sum of the waits.
    #[test]
    fn every_nanosecond_is_blamed_exactly_once() {
        let account = Account::new(None);
        let (waited, blamed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for of in 0..4u64 {
                let (account, waited, blamed) = (&account, &waited, &blamed);
                scope.spawn(move || {
                    let leave = |start| {
                        let until = account.leave(start).unwrap_or(start);
                        waited.fetch_add(until - start, Ordering::Relaxed);
                    };
                    let mut waits = [None; 3];
                    for turn in 0..50_000u64 {
                        let number = ((turn * 7 + of) * 0x9e37_79b9) >> 16;
                        match &mut waits[(number % 3) as usize] {
                            Some(start) => {
                                leave(*start);
                                waits[(number % 3) as usize] = None;
                            }
                            none => *none = Some(account.enter(KIND)),
                        }
                        if number % 5 == 0 {
                            blamed.fetch_add(blame(account), Ordering::Relaxed);
                        }
                    }
                    waits.into_iter().flatten().for_each(leave);
                });
            }
        });
        assert!(!account.is_in_use());
        let (waited, blamed) = (waited.into_inner(), blamed.into_inner());
        assert!(waited > 0);
        assert_eq!(waited, blamed);
    }
}
