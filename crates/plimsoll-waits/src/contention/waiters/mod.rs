//! The table of waiting threads and of the keys on which they wait.
//!
//! The table has a fixed size, lies in static memory and needs no lock. Hooks use it, and a hook
//! can interrupt any code, even another use of the table, from a signal handler.
//!
//! A waiter takes a free slot with a compare-and-swap, the first from its key's *home* on, and
//! counts itself at the home. A waking thread reads the home. If the count is zero, there are no
//! waiters, and the release has cost one cache line. Otherwise the thread visits as many slots as
//! the farthest of the home's waiters needed (the *reach*), and stamps those of its key.
//!
//! A stamp must affect neither the slot's next waiter, nor a waiter that has already read its clock
//! and left. So a clock contains a turn number. A waiter that leaves reads the clock, advances the
//! turn and stops the clock, at 0, in one step. A stamping thread reads the clock, then the key. It
//! advances the clock only if the clock is running and still in the turn that was read.

use super::WaitKind;
#[cfg(not(loom))]
use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Slots in the table, a power of two: the number of threads that can wait at once and be seen.
#[cfg(not(any(test, loom)))]
const SLOTS: usize = 1 << 14;
/// Few enough for a test to fill the table.
#[cfg(all(test, not(loom)))]
const SLOTS: usize = 1 << 9;
/// Few enough for a model to explore every execution.
#[cfg(loom)]
const SLOTS: usize = 2;

/// The number of slots, from its home on, that a waiter tries.
const FARTHEST: usize = if cfg!(loom) { SLOTS } else { SLOTS / 2 };

/// The key of a slot that is being filled in.
const TAKEN: usize = 1;

/// Added to the address of a word to form the key under which the word's lock is found. Words are
/// four bytes, at multiples of four, so no lock has such an address.
const ALIAS: usize = 2;

/// The lower bits of a clock are nanoseconds, which is enough for two years; the upper bits are the
/// turn.
const TURN: u32 = 56;
const TIME: u64 = (1 << TURN) - 1;

#[repr(C, align(32))]
struct Slot {
    /// The awaited key; 0 if the slot is free.
    key: AtomicUsize,
    /// The time until which the wait is accounted for; in an alias, the key of the lock.
    clock: AtomicU64,
    /// A [`WaitKind`].
    kind: AtomicU32,
    /// The state of this slot as a home: the number of waiters whose home it is. The upper half is
    /// the number of slots, from here on, that hold these waiters.
    home: AtomicU32,
}

#[cfg(not(loom))]
type Slots = Forgotten<[Slot; SLOTS]>;
#[cfg(loom)]
type Slots = [Slot; SLOTS];

pub struct Waiters {
    slots: Slots,
    lost: AtomicU64,
}

/// The table of the process.
#[cfg(not(loom))]
pub static WAITERS: Waiters = Waiters::new();

/// Returns the number of waits that found no free slot. No release is charged for them.
#[cfg(not(loom))]
pub fn lost() -> u64 {
    WAITERS.lost.load(Ordering::Relaxed)
}

/// A waiter's slot in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaiterSlot {
    slot: u32,
    /// The waiter's turn, in the upper bits.
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

    /// Enters a wait for `key` whose clock starts at `time`. Returns `None`, and counts the wait as
    /// lost, if no slot is free.
    pub(super) fn enter(&self, key: usize, kind: WaitKind, time: u64) -> Option<WaiterSlot> {
        let place = self.take(key, kind, time);
        if place.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        place
    }

    /// Records that waiters on `word` wait for the lock at `key`.
    pub(super) fn enter_alias(&self, word: usize, key: usize) -> Option<WaiterSlot> {
        self.take(word | ALIAS, WaitKind::Other, key as u64)
    }

    fn take(&self, key: usize, kind: WaitKind, content: u64) -> Option<WaiterSlot> {
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
        // The clock is stopped, so no other thread writes to it.
        let turn = slot.clock.load(Ordering::Relaxed) & !TIME;
        // Release: a thread that sees this clock also sees that the key of the previous turn is
        // gone.
        slot.clock
            .store(turn | (content & TIME).max(1), Ordering::Release);
        slot.kind.store(kind as u32, Ordering::Relaxed);
        // Release: a thread that sees the key also sees the other fields.
        slot.key.store(key, Ordering::Release);
        self.slots[home].arrive(distance as u32 + 1);
        Some(WaiterSlot {
            slot: at as u32,
            turn,
            key,
        })
    }

    /// Frees the slot; returns the last value of its clock.
    pub(super) fn leave(&self, place: WaiterSlot) -> u64 {
        let slot = &self.slots[place.slot as usize];
        let stopped = place.turn.wrapping_add(1 << TURN);
        let clock = slot.clock.swap(stopped, Ordering::AcqRel);
        // In the child of a fork, the table was cleared during the wait.
        if slot.key.load(Ordering::Relaxed) != 0 {
            slot.key.store(0, Ordering::Release);
            self.slots[home(place.key)].depart();
        }
        clock & TIME
    }

    /// Returns whether a thread may be waiting for a key of the same home.
    #[inline]
    pub(super) fn any(&self, key: usize) -> bool {
        parts(self.slots[home(key)].home.load(Ordering::Acquire)).0 != 0
    }

    /// Advances the clocks of all waiters that a wake-up of `word` releases to `now`, and calls
    /// `stamped` with the kind of each and the advance. These wait for `word` itself, for the lock
    /// of which `word` is an alias, or for the readers-writer lock at `first_word`.
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

    /// Same as [`stamp`](Self::stamp), for waiters for `key` of one kind.
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

    /// Calls `visit` with each slot in reach of a home, its key, and the value that its clock had
    /// with that key.
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

    /// Prepares the table. Called once, before `main`.
    #[cfg(not(loom))]
    pub(super) fn prepare(&'static self) {
        self.slots.prepare();
    }

    /// Empties the table in the child of a fork, which has no waiters.
    #[cfg(not(loom))]
    pub(super) fn after_fork_in_child(&self) {
        if self.slots.is_forgotten() {
            return;
        }
        for slot in self.slots.iter() {
            // A read does not copy an untouched page.
            if slot.key.load(Ordering::Relaxed) != 0 {
                slot.clock.store(0, Ordering::Relaxed);
                slot.key.store(0, Ordering::Relaxed);
            }
            if slot.home.load(Ordering::Relaxed) != 0 {
                slot.home.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of threads in the table.
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

    /// Advances the clock to `now`, unless the clock is there already, or the waiter has left since
    /// the clock was read as `clock`.
    fn stamp(&self, mut clock: u64, now: u64, stamped: &mut impl FnMut(WaitKind, u64)) {
        let kind = self.kind();
        let turn = clock & !TIME;
        loop {
            let ahead = now.wrapping_sub(clock) & TIME;
            // Another thread has already set a later time.
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

    /// Counts one more waiter at its home, in one of the first `distance` slots.
    fn arrive(&self, distance: u32) {
        self.change_home(|count, reach| (count + 1, reach.max(distance)));
    }

    /// Counts one waiter less. A home without waiters has no reach.
    fn depart(&self) {
        self.change_home(|count, reach| match count {
            0 | 1 => (0, 0),
            _ => (count - 1, reach),
        });
    }

    /// Changes count and reach in one step: each separate step would have to wait for the cache
    /// line.
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

/// Splits a home into count and reach.
fn parts(home: u32) -> (u32, u32) {
    (home & 0xffff, home >> 16)
}

/// Returns the first slot for waiters of a key. All words of a cache line have the same home.
fn home(key: usize) -> usize {
    let mixed = (key as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SLOTS
}

#[cfg(all(test, not(loom)))]
mod tests;
