//! The members, and what the C library calls around a fork.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::arch::thread_pointer;
use crate::os::signals::BlockedSignals;
use crate::primitives::{AtomicBool, AtomicUsize, Ordering};

/// The position in which a lock is taken, below 64: a thread that holds a lock takes only those of higher rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u8);

impl Rank {
    /// This crate's tables without a lock.
    pub(crate) const TABLES: Self = Self(61);
    /// The lock for calls to the dynamic loader.
    pub const LOADER: Self = Self(62);
    /// The last lock: its holders take no other.
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

    /// Continues in the child, after all members are released.
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
    /// Creates a member that only [resets](Member::reset) something in the child.
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

const MAX_MEMBERS: usize = 48;

/// The members, in the order of their ranks.
#[derive(Clone, Copy)]
struct Members {
    list: [Option<&'static dyn Member>; MAX_MEMBERS],
    count: usize,
}

impl Members {
    fn ascending(&self) -> impl DoubleEndedIterator<Item = &'static dyn Member> {
        self.list[..self.count].iter().copied().flatten()
    }
}

/// Held briefly, and while the system forks: a thread that holds locks may join.
static MEMBERS: Mutex<Members> = Mutex::new(Members {
    list: [None; MAX_MEMBERS],
    count: 0,
});

fn members() -> MutexGuard<'static, Members> {
    MEMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held from before a fork until after it.
static FORKING: Mutex<()> = Mutex::new(());

/// Adds a member to all later forks. A repeated call has no effect. Not for hooks.
///
/// # Panics
/// If there are more than 48 members.
pub fn join(member: &'static dyn Member) {
    let _blocked = BlockedSignals::new();
    register();
    let mut members = members();
    let count = members.count;
    // Members without a size may share an address, but not with the same rank.
    let is_known = members
        .ascending()
        .any(|known| std::ptr::addr_eq(known, member) && known.rank() == member.rank());
    if is_known {
        return;
    }
    assert!(
        count < MAX_MEMBERS,
        "more than {MAX_MEMBERS} members of a fork"
    );
    let after = members
        .ascending()
        .filter(|known| known.rank() <= member.rank());
    let at = after.count();
    members.list[at..=count].rotate_right(1);
    members.list[at] = Some(member);
    members.count += 1;
}

/// Registers the handlers before the first member joins: a fork without them would leave `MEMBERS` locked in the child.
/// Two threads may both register them. The second call of each handler has no effect.
fn register() {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Acquire) {
        crate::os::atfork::register(before, after_in_parent, after_in_child);
        IS_REGISTERED.store(true, Ordering::Release);
    }
}

/// The thread pointer of the thread that forks, from the end of [`before`] on; else 0.
static OWNER: AtomicUsize = AtomicUsize::new(0);

/// The locks that a fork holds besides those of its members.
struct ForkGuards {
    members: MutexGuard<'static, Members>,
    forking: MutexGuard<'static, ()>,
    /// Dropped last: signals arrive after all locks are free.
    _signals: BlockedSignals,
}

struct GuardsSlot(UnsafeCell<Option<ForkGuards>>);

// SAFETY: only the thread that holds `FORKING` uses it.
unsafe impl Sync for GuardsSlot {}

static GUARDS: GuardsSlot = GuardsSlot(UnsafeCell::new(None));

/// Takes the guards, if this thread forks.
fn take_guards() -> Option<ForkGuards> {
    if OWNER.load(Ordering::Relaxed) != thread_pointer() {
        return None;
    }
    OWNER.store(0, Ordering::Relaxed);
    // SAFETY: this thread holds `FORKING` since `before`.
    unsafe { (*GUARDS.0.get()).take() }
}

extern "C" fn before() {
    if OWNER.load(Ordering::Relaxed) == thread_pointer() {
        return;
    }
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
        *GUARDS.0.get() = Some(ForkGuards {
            members,
            forking,
            _signals: signals,
        });
    }
    OWNER.store(thread_pointer(), Ordering::Relaxed);
}

extern "C" fn after_in_parent() {
    if let Some(guards) = take_guards() {
        let list = *guards.members;
        drop(guards.members);
        list.ascending().rev().for_each(|member| member.release());
        drop(guards.forking);
    }
}

extern "C" fn after_in_child() {
    crate::os::forget_ids();
    let Some(guards) = take_guards() else {
        return;
    };
    let list = *guards.members;
    // Resets may join.
    drop(guards.members);
    for member in list.ascending().rev() {
        member.reset();
        member.release();
    }
    drop(guards.forking);
    list.ascending().for_each(|member| member.resume());
}
