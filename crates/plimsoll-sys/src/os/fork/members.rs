//! The members, and what the C library calls around a fork.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::os::signals::BlockedSignals;

/// The position in which a lock is taken, below 64: a thread that holds a lock takes only those of higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

impl Rank {
    /// Of tables without a lock, in this crate.
    pub(crate) const TABLES: Self = Self(61);
    /// Of questions to the dynamic loader.
    pub(crate) const LOADER: Self = Self(62);
    /// Of the last lock: its holders take no other.
    pub const LAST: Self = Self(63);
}

/// A part of the process that a fork concerns. The functions run on the thread that forks.
pub trait Member: Sync {
    /// The position among all members.
    fn rank(&self) -> Rank;

    /// Does what needs locks, or memory, before a fork.
    fn prepare(&self) {}

    /// Keeps other threads out until [`release`](Self::release). Neither allocates nor takes a lock of lower rank.
    fn hold(&self) {}

    /// Ends [`hold`](Self::hold), in the parent and in the child.
    fn release(&self) {}

    /// Forgets the threads of the parent, in the child.
    fn reset(&self) {}

    /// Goes on in the child, where nothing is held any more.
    fn resume(&self) {}
}

/// A member without a lock, whose functions are given.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// See [`Member::rank`].
    pub rank: Rank,
    /// See [`Member::hold`].
    pub hold: fn(),
    /// See [`Member::release`].
    pub release: fn(),
    /// See [`Member::reset`].
    pub reset: fn(),
}

impl Table {
    /// Creates a member of which the child only [resets](Member::reset) something.
    pub const fn new(rank: Rank, reset: fn()) -> Self {
        const fn nothing() {}
        Self {
            rank,
            hold: nothing,
            release: nothing,
            reset,
        }
    }
}

impl Member for Table {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn hold(&self) {
        (self.hold)();
    }

    fn release(&self) {
        (self.release)();
    }

    fn reset(&self) {
        (self.reset)();
    }
}

/// The most members.
const MOST: usize = 48;

/// The members, in the order of their ranks.
#[derive(Clone, Copy)]
struct Members {
    list: [Option<&'static dyn Member>; MOST],
    count: usize,
}

impl Members {
    fn ascending(&self) -> impl DoubleEndedIterator<Item = &'static dyn Member> {
        self.list[..self.count].iter().copied().flatten()
    }
}

/// Held for a moment only, and while the system forks: a thread that holds locks may join.
static MEMBERS: Mutex<Members> = Mutex::new(Members {
    list: [None; MOST],
    count: 0,
});

fn members() -> MutexGuard<'static, Members> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held from before a fork until after it.
static FORKING: Mutex<()> = Mutex::new(());

/// Lets a member take part in all later forks. A repeated call has no effect. Not for hooks.
///
/// # Panics
/// If there are more than 48 members.
pub fn join(member: &'static dyn Member) {
    let _blocked = BlockedSignals::new();
    let mut members = members();
    let count = members.count;
    if members
        .ascending()
        .any(|known| std::ptr::addr_eq(known, member))
    {
        return;
    }
    assert!(count < MOST, "more than {MOST} members of a fork");
    let after = members
        .ascending()
        .filter(|known| known.rank() <= member.rank());
    let at = after.count();
    members.list[at..=count].rotate_right(1);
    members.list[at] = Some(member);
    members.count += 1;
    if count == 0 {
        crate::os::atfork::register(before, after_in_parent, after_in_child);
    }
}

/// What is held from [`before`] on.
struct Held {
    members: MutexGuard<'static, Members>,
    forking: MutexGuard<'static, ()>,
    /// Dropped last: signals arrive when no lock is held.
    _signals: BlockedSignals,
}

struct Place(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that holds `FORKING` uses it.
unsafe impl Sync for Place {}

static HELD: Place = Place(UnsafeCell::new(None));

extern "C" fn before() {
    let signals = BlockedSignals::new();
    let mut at = 0;
    // Nothing is held meanwhile, so a member may join.
    while let Some(member) = { members().list.get(at).copied().flatten() } {
        member.prepare();
        at += 1;
    }
    let forking = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut list = *members();
    let members = loop {
        list.ascending().for_each(|member| member.hold());
        let members = members();
        if members.count == list.count {
            break members;
        }
        // Others have joined, which may have lower ranks.
        let later = *members;
        drop(members);
        list.ascending().rev().for_each(|member| member.release());
        list = later;
    };
    // SAFETY: only the thread that forks uses it, and this one holds `FORKING`.
    unsafe {
        *HELD.0.get() = Some(Held {
            members,
            forking,
            _signals: signals,
        });
    }
}

extern "C" fn after_in_parent() {
    // SAFETY: this thread holds `FORKING` since `before`.
    if let Some(held) = unsafe { (*HELD.0.get()).take() } {
        let list = *held.members;
        drop(held.members);
        list.ascending().rev().for_each(|member| member.release());
        drop(held.forking);
    }
}

extern "C" fn after_in_child() {
    crate::os::forget_ids();
    // SAFETY: as above; the thread is the child's only one.
    let Some(held) = (unsafe { (*HELD.0.get()).take() }) else {
        return;
    };
    let list = *held.members;
    // Resets may join.
    drop(held.members);
    for member in list.ascending().rev() {
        member.reset();
        member.release();
    }
    drop(held.forking);
    list.ascending().for_each(|member| member.resume());
}
