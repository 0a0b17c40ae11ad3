//! The table of threads that wait, and of what for.
//!
//! Fixed in size, in static memory, and without a lock: it is used from hooks, which may be in the
//! middle of anything, a signal handler on top of another use of the table included.
//!
//! A waiter takes a free slot with a compare-and-swap, the first from its key's *home* on, and
//! counts itself at home. Whoever wakes looks at the home: if nobody is counted there, which is one
//! cache line, there is nobody. Otherwise it looks at as many slots as the farthest of the home's
//! waiters went (the *reach*), and stamps those of its key.
//!
//! A stamp must not hit the slot's next waiter, nor one that has read its clock already and is
//! gone. So a clock has a turn number in it: a waiter that leaves advances that in the same step in
//! which it reads the clock, and leaves the clock stopped, at 0. Who stamps reads the clock, then
//! the key, and advances the clock only if it is not stopped and has still the turn that was read.

use super::WaitKind;
#[cfg(not(loom))]
use crate::os::forgotten::Forgotten;
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Slots in the table, a power of two: so many threads can wait at once and be seen.
#[cfg(not(any(test, loom)))]
const SLOTS: usize = 1 << 14;
/// Few enough for a test to use them up.
#[cfg(all(test, not(loom)))]
const SLOTS: usize = 1 << 9;
/// Few enough for a model to go through all that can happen.
#[cfg(loom)]
const SLOTS: usize = 2;

/// How far from its home a waiter looks for a slot.
const FARTHEST: usize = if cfg!(loom) { SLOTS } else { SLOTS / 2 };

/// A slot that is being filled in.
const TAKEN: usize = 1;

/// Added to the address of a word to make the key under which it is looked up to find its lock:
/// words are four bytes, at multiples of four, so no lock is there.
const ALIAS: usize = 2;

/// Nanoseconds take the lower bits of a clock, which is enough for two years; the turn the others.
const TURN: u32 = 56;
const TIME: u64 = (1 << TURN) - 1;

#[repr(C, align(32))]
struct Slot {
    /// What is waited for; 0 if the slot is free.
    key: AtomicUsize,
    /// Until when this wait is accounted for; of an alias, the key of the lock.
    clock: AtomicU64,
    /// A [`WaitKind`].
    kind: AtomicU32,
    /// Not of this slot's waiter, but of those whose home is here: how many there are, and in the
    /// upper half how many slots from here on they are in.
    home: AtomicU32,
}

#[cfg(not(loom))]
type Slots = Forgotten<[Slot; SLOTS]>;
#[cfg(loom)]
type Slots = [Slot; SLOTS];

pub(crate) struct Waiters {
    slots: Slots,
    lost: AtomicU64,
}

/// The table of the process.
#[cfg(not(loom))]
pub(crate) static WAITERS: Waiters = Waiters::new();

/// Waits that found no slot since the process began: nobody is blamed for them.
#[cfg(not(loom))]
pub(crate) fn lost() -> u64 {
    WAITERS.lost.load(Ordering::Relaxed)
}

/// A place in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    slot: u32,
    /// The waiter's turn, in place.
    turn: u64,
    key: usize,
}

impl Waiters {
    #[cfg(not(loom))]
    const fn new() -> Self {
        Self {
            slots: Forgotten::new(
                [const {
                    Slot {
                        key: AtomicUsize::new(0),
                        clock: AtomicU64::new(0),
                        kind: AtomicU32::new(0),
                        home: AtomicU32::new(0),
                    }
                }; SLOTS],
            ),
            lost: AtomicU64::new(0),
        }
    }

    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot {
                key: AtomicUsize::new(0),
                clock: AtomicU64::new(0),
                kind: AtomicU32::new(0),
                home: AtomicU32::new(0),
            }),
            lost: AtomicU64::new(0),
        }
    }

    /// Enters a wait for `key` whose clock stands at `time`. `None`, and counted as lost, if there
    /// is no room.
    pub(super) fn enter(&self, key: usize, kind: WaitKind, time: u64) -> Option<Place> {
        let place = self.take(key, kind, time);
        if place.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Enters that who waits on `word` waits for the lock at `key`.
    pub(super) fn enter_alias(&self, word: usize, key: usize) -> Option<Place> {
        self.take(word | ALIAS, WaitKind::Other, key as u64)
    }

    fn take(&self, key: usize, kind: WaitKind, content: u64) -> Option<Place> {
        let home = home(key);
        let free = (0..FARTHEST).find_map(|distance| {
            let at = (home + distance) % SLOTS;
            let slot = &self.slots[at];
            let free = slot.key.load(Ordering::Relaxed) == 0
                && slot
                    .key
                    .compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            free.then_some((at, distance))
        });
        let (at, distance) = free?;
        let slot = &self.slots[at];
        // Stopped, so nobody else writes to it.
        let turn = slot.clock.load(Ordering::Relaxed) & !TIME;
        // Whoever sees this sees that the key of the turn before is gone.
        slot.clock
            .store(turn | (content & TIME).max(1), Ordering::Release);
        slot.kind.store(kind as u32, Ordering::Relaxed);
        // Whoever sees the key sees the rest.
        slot.key.store(key, Ordering::Release);
        self.slots[home].arrive(distance as u32 + 1);
        Some(Place {
            slot: at as u32,
            turn,
            key,
        })
    }

    /// Gives the slot back; returns where its clock stood.
    pub(super) fn leave(&self, place: Place) -> u64 {
        let slot = &self.slots[place.slot as usize];
        let stopped = place.turn.wrapping_add(1 << TURN);
        let clock = slot.clock.swap(stopped, Ordering::AcqRel);
        // In a fork's child, the table was cleared under it.
        if slot.key.load(Ordering::Relaxed) != 0 {
            slot.key.store(0, Ordering::Release);
            self.slots[home(place.key)].depart();
        }
        clock & TIME
    }

    /// Whether anybody may be waiting for a key of the same home.
    #[inline]
    pub(super) fn any(&self, key: usize) -> bool {
        parts(self.slots[home(key)].home.load(Ordering::Acquire)).0 != 0
    }

    /// Advances the clocks of all to `now` who wait for what is released by waking waiters of
    /// `word`, and calls `stamped` with the kind of each and by how much: of those who wait for
    /// `word` itself, or for the lock that it stands for; and of those who wait for the
    /// readers-writer lock at `first_word`.
    pub(super) fn stamp(
        &self,
        word: usize,
        first_word: usize,
        now: u64,
        mut stamped: impl FnMut(WaitKind, u64),
    ) {
        let mut lock = None;
        self.visit(home(word), |slot, key, clock| {
            if key == word || (key == first_word && slot.kind().is_rwlock()) {
                slot.stamp(clock, now, &mut stamped);
            } else if key == word | ALIAS {
                lock = Some((clock & TIME) as usize);
            }
        });
        if home(first_word) != home(word) {
            self.visit(home(first_word), |slot, key, clock| {
                if key == first_word && slot.kind().is_rwlock() {
                    slot.stamp(clock, now, &mut stamped);
                }
            });
        }
        if let Some(lock) = lock {
            self.visit(home(lock), |slot, key, clock| {
                if key == lock {
                    slot.stamp(clock, now, &mut stamped);
                }
            });
        }
    }

    /// The same for those who wait for `key`, in one way.
    pub(super) fn stamp_kind(
        &self,
        key: usize,
        kind: WaitKind,
        now: u64,
        mut stamped: impl FnMut(WaitKind, u64),
    ) {
        self.visit(home(key), |slot, of, clock| {
            if of == key && slot.kind() == kind {
                slot.stamp(clock, now, &mut stamped);
            }
        });
    }

    /// Calls `visit` with each slot in reach of a home, with its key, and with what its clock was
    /// while it had that.
    fn visit(&self, home: usize, mut visit: impl FnMut(&Slot, usize, u64)) {
        let (count, reach) = parts(self.slots[home].home.load(Ordering::Acquire));
        if count == 0 {
            return;
        }
        for distance in 0..reach as usize {
            let slot = &self.slots[(home + distance) % SLOTS];
            let clock = slot.clock.load(Ordering::Acquire);
            let key = slot.key.load(Ordering::Acquire);
            if clock & TIME != 0 && key > TAKEN {
                visit(slot, key, clock);
            }
        }
    }

    /// Once, before `main`.
    #[cfg(not(loom))]
    pub(super) fn prepare(&'static self) {
        self.slots.prepare();
    }

    /// In the child of a fork: nobody waits.
    #[cfg(not(loom))]
    pub(super) fn after_fork_in_child(&self) {
        if self.slots.is_forgotten() {
            return;
        }
        for slot in self.slots.iter() {
            // Reading leaves untouched pages as they are.
            if slot.key.load(Ordering::Relaxed) != 0 {
                slot.clock.store(0, Ordering::Relaxed);
                slot.key.store(0, Ordering::Relaxed);
            }
            if slot.home.load(Ordering::Relaxed) != 0 {
                slot.home.store(0, Ordering::Relaxed);
            }
        }
    }

    /// How many threads are in the table.
    #[cfg(test)]
    fn occupied(&self) -> usize {
        let taken = |slot: &&Slot| slot.key.load(Ordering::Relaxed) != 0;
        self.slots.iter().filter(taken).count()
    }
}

impl Slot {
    fn kind(&self) -> WaitKind {
        WaitKind::from_number(self.kind.load(Ordering::Relaxed).into())
    }

    /// Advances the clock to `now`, unless that was done or the waiter has left since it was
    /// `clock`.
    fn stamp(&self, mut clock: u64, now: u64, stamped: &mut impl FnMut(WaitKind, u64)) {
        let kind = self.kind();
        let turn = clock & !TIME;
        loop {
            let ahead = now.wrapping_sub(clock) & TIME;
            // Somebody else, with a later clock, was faster.
            if ahead > TIME / 2 {
                return;
            }
            let next = turn | now & TIME;
            match self
                .clock
                .compare_exchange_weak(clock, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return stamped(kind, ahead),
                Err(other) if other & !TIME == turn && other & TIME != 0 => clock = other,
                // The waiter has left.
                Err(_) => return,
            }
        }
    }

    /// Counts one more at home, who went as far as `distance`.
    fn arrive(&self, distance: u32) {
        self.change_home(|count, reach| (count + 1, reach.max(distance)));
    }

    /// Counts one less. Where there is nobody left, nobody is looked for any distance.
    fn depart(&self) {
        self.change_home(|count, reach| match count {
            0 | 1 => (0, 0),
            _ => (count - 1, reach),
        });
    }

    /// In one step, since each would wait for the cache line.
    fn change_home(&self, change: impl Fn(u32, u32) -> (u32, u32)) {
        let mut home = self.home.load(Ordering::Relaxed);
        loop {
            let (count, reach) = parts(home);
            let (count, reach) = change(count, reach);
            match self.home.compare_exchange_weak(
                home,
                reach << 16 | count,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => home = other,
            }
        }
    }
}

/// Count and reach.
fn parts(home: u32) -> (u32, u32) {
    (home & 0xffff, home >> 16)
}

/// Where the waiters of a key are looked for first. All words of a cache line have the same home.
fn home(key: usize) -> usize {
    let mixed = (key as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SLOTS
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn stamp(waiters: &Waiters, key: usize, now: u64) -> Vec<u64> {
        let mut delays = Vec::new();
        waiters.stamp(key, key, now, |_, delay| delays.push(delay));
        delays.sort();
        delays
    }

    #[test]
    fn a_release_is_charged_with_what_nobody_was_charged_with_before() {
        let waiters = Box::new(Waiters::new());
        let first = waiters.enter(0x1000, WaitKind::Mutex, 100).unwrap();
        let second = waiters.enter(0x1000, WaitKind::Mutex, 130).unwrap();
        let other = waiters.enter(0x1004, WaitKind::Mutex, 140).unwrap();
        assert_eq!(stamp(&waiters, 0x1000, 150), [20, 50]);
        assert_eq!(waiters.leave(first), 150);
        assert_eq!(stamp(&waiters, 0x1000, 160), [10]);
        // A clock is not set back.
        assert_eq!(stamp(&waiters, 0x1000, 155), [0; 0]);
        assert_eq!(waiters.leave(second), 160);
        assert_eq!(stamp(&waiters, 0x1000, 200), [0; 0]);
        assert_eq!(waiters.leave(other), 140);
        assert_eq!(waiters.occupied(), 0);
        assert!(
            waiters
                .slots
                .iter()
                .all(|slot| slot.home.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn a_word_leads_to_its_lock() {
        let waiters = Box::new(Waiters::new());
        let lock = waiters.enter(0x5000, WaitKind::Mutex, 1).unwrap();
        let alias = waiters.enter_alias(0x7f00_0000_2000, 0x5000).unwrap();
        assert_eq!(stamp(&waiters, 0x7f00_0000_2004, 5), [0; 0]);
        assert_eq!(stamp(&waiters, 0x7f00_0000_2000, 9), [8]);
        waiters.leave(alias);
        waiters.leave(lock);
        assert_eq!(stamp(&waiters, 0x7f00_0000_2000, 12), [0; 0]);
    }

    #[test]
    fn the_second_word_of_a_readers_writer_lock_leads_to_the_first() {
        let waiters = Box::new(Waiters::new());
        let mut delays = Vec::new();
        // In one cache line, and not.
        for first in [0x1000, 0x103c] {
            let writer = waiters.enter(first, WaitKind::RwLockWrite, 10).unwrap();
            let mutex = waiters.enter(first, WaitKind::Mutex, 10).unwrap();
            waiters.stamp(first + 4, first, 30, |kind, delay| {
                delays.push((kind, delay))
            });
            waiters.leave(writer);
            waiters.leave(mutex);
        }
        assert_eq!(delays, [(WaitKind::RwLockWrite, 20); 2]);
    }

    #[test]
    fn one_way_to_wait_can_be_stamped_and_another_not() {
        let waiters = Box::new(Waiters::new());
        let mut delays = Vec::new();
        let reader = waiters.enter(0x1000, WaitKind::RwLockRead, 10).unwrap();
        let writer = waiters.enter(0x1000, WaitKind::RwLockWrite, 10).unwrap();
        waiters.stamp_kind(0x1000, WaitKind::RwLockWrite, 30, |kind, delay| {
            delays.push((kind, delay))
        });
        assert_eq!(delays, [(WaitKind::RwLockWrite, 20)]);
        assert_eq!((waiters.leave(reader), waiters.leave(writer)), (10, 30));
    }

    #[test]
    fn who_finds_no_slot_is_counted_and_harms_nobody() {
        let waiters = Box::new(Waiters::new());
        let places: Vec<_> = (0..FARTHEST as u64)
            .map(|at| waiters.enter(0x4000, WaitKind::Mutex, at).unwrap())
            .collect();
        assert!(waiters.enter(0x4000, WaitKind::Mutex, 0).is_none());
        assert_eq!(waiters.lost.load(Ordering::Relaxed), 1);
        assert_eq!(stamp(&waiters, 0x4000, 10_000).len(), FARTHEST);
        for place in places {
            assert_eq!(waiters.leave(place), 10_000);
        }
        assert!(waiters.enter(0x4000, WaitKind::Mutex, 0).is_some());
    }

    /// Two threads wait, over and over, in a table with few slots; two others stamp. What was
    /// charged is what was waited, to the nanosecond, whoever was in which slot.
    #[test]
    fn every_nanosecond_is_charged_exactly_once() {
        let waiters = Box::new(Waiters::new());
        let clock = AtomicU64::new(1);
        let done = AtomicBool::new(false);
        let (waited, charged) = std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..2)
                .map(|of| {
                    let (waiters, clock) = (&waiters, &clock);
                    scope.spawn(move || {
                        let mut waited = 0;
                        for turn in 0..200_000 {
                            let start = clock.fetch_add(1, Ordering::Relaxed);
                            let key = 0x1000 + 4 * ((turn + of) % 3);
                            let place = waiters.enter(key, WaitKind::Mutex, start).unwrap();
                            waited += waiters.leave(place) - start;
                        }
                        waited
                    })
                })
                .collect();
            let waking: Vec<_> = (0..2)
                .map(|_| {
                    let (waiters, clock, done) = (&waiters, &clock, &done);
                    scope.spawn(move || {
                        let mut charged = 0;
                        while !done.load(Ordering::Relaxed) {
                            for key in [0x1000, 0x1004, 0x1008] {
                                let now = clock.fetch_add(1, Ordering::Relaxed);
                                waiters.stamp(key, key, now, |_, delay| charged += delay);
                            }
                        }
                        charged
                    })
                })
                .collect();
            let waited: u64 = waiting
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum();
            done.store(true, Ordering::Relaxed);
            let charged: u64 = waking
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum();
            (waited, charged)
        });
        assert!(waited > 0, "nobody was stamped");
        assert_eq!(waited, charged);
    }

    #[test]
    fn the_child_of_a_fork_waits_for_nothing() {
        let waiters = Box::new(Waiters::new());
        let place = waiters.enter(0x1000, WaitKind::Mutex, 1).unwrap();
        waiters.after_fork_in_child();
        assert_eq!(stamp(&waiters, 0x1000, 9), [0; 0]);
        waiters.leave(place);
        assert_eq!(waiters.occupied(), 0);
        let place = waiters.enter(0x1000, WaitKind::Mutex, 1).unwrap();
        assert_eq!(stamp(&waiters, 0x1000, 9), [8]);
        waiters.leave(place);
    }
}
