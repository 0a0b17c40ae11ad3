//! Accounts: totals of what several tasks allocate, on any thread.
//!
//! An account may lie in another one, which is charged as well. An account and those outside it are a
//! chain. While a poll that is charged to a chain polls another one, only those accounts of the inner
//! chain are added that the outer chain lacks. As accounts form a tree, these are its first ones.

use std::cell::Cell;
use std::ptr;
use std::sync::{Arc, MutexGuard, PoisonError};

use plimsoll_sys::primitives::{AtomicBool, AtomicI64, AtomicU64, Mutex, Ordering};

use super::{ACTIVE, Counts, begin, end};
use crate::internal_scope;

/// The totals of an account. Sizes are those that the program requested.
pub struct Totals {
    outer: Option<Arc<Totals>>,
    /// These are of polls that have ended.
    pub allocations: AtomicU64,
    /// Blocks freed in these polls.
    pub frees: AtomicU64,
    /// Bytes allocated in these polls.
    pub allocated_bytes: AtomicU64,
    /// Bytes freed in these polls.
    pub freed_bytes: AtomicU64,
    bytes: Held,
    blocks: Held,
    /// Whether several tasks are charged to the account, so that several threads may change it at once.
    /// Otherwise its only task is polled by one thread after another, which needs no atomic addition.
    /// Set before a second task is charged, and never unset.
    is_shared: AtomicBool,
    /// The limit of the held bytes.
    limit: AtomicI64,
    /// Whether the limit was passed and its callback is to be called.
    is_passed: AtomicBool,
    callback: Mutex<Option<Callback>>,
}

/// A function that is called after the limit was passed.
pub type Callback = Arc<dyn Fn(&Arc<Totals>) + Send + Sync>;

/// An amount allocated less that freed.
struct Held {
    now: AtomicI64,
    /// At least 0.
    max: AtomicI64,
}

impl Held {
    const fn new() -> Self {
        Self {
            now: AtomicI64::new(0),
            max: AtomicI64::new(0),
        }
    }

    /// Adds a section that changed the amount by `net`, and by `max` at most. Returns the amount
    /// before.
    ///
    /// All changes of `now` have one order, in which each thread sees the result of its own. So the
    /// maximum is exact if each section of a shared account is a single operation.
    #[inline]
    fn add(&self, net: i64, max: i64, is_shared: bool) -> i64 {
        let before = match is_shared {
            true => self.now.fetch_add(net, Ordering::Relaxed),
            false => {
                let before = self.now.load(Ordering::Relaxed);
                self.now.store(before.wrapping_add(net), Ordering::Relaxed);
                before
            }
        };
        let max = before.wrapping_add(max);
        if max > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(max, Ordering::Relaxed);
        }
        before
    }
}

impl Totals {
    /// Makes the totals of an account inside `outer`.
    pub fn new(outer: Option<Arc<Totals>>) -> Arc<Self> {
        let _own = internal_scope::scope();
        Arc::new(Self {
            outer,
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            allocated_bytes: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
            bytes: Held::new(),
            blocks: Held::new(),
            is_shared: AtomicBool::new(false),
            limit: AtomicI64::new(i64::MAX),
            is_passed: AtomicBool::new(false),
            callback: Mutex::new(None),
        })
    }

    /// Returns the account outside this one; null if there is none.
    fn outer(&self) -> *const Self {
        self.outer.as_ref().map_or(ptr::null(), Arc::as_ptr)
    }

    /// Permits that several tasks are charged to the account and to those outside it. Called by the
    /// thread that polls its only task, or before its first poll.
    pub fn share(&self) {
        let mut next = Some(self);
        while let Some(account) = next {
            account.is_shared.store(true, Ordering::Relaxed);
            next = account.outer.as_deref();
        }
    }

    /// Returns the bytes allocated less those freed, 0 if negative. Of an account that several tasks share, this includes polls
    /// in progress.
    pub fn held_bytes(&self) -> u64 {
        self.bytes.now.load(Ordering::Relaxed).max(0).unsigned_abs()
    }

    /// Returns the maximum of the bytes allocated less those freed, polls in progress included.
    pub fn max_bytes(&self) -> u64 {
        self.bytes.max.load(Ordering::Relaxed).unsigned_abs()
    }

    /// Returns the maximum of the number of allocations less that of frees, polls in progress
    /// included.
    pub fn max_blocks(&self) -> u64 {
        self.blocks.max.load(Ordering::Relaxed).unsigned_abs()
    }

    /// Sets the limit of the held bytes, and the function that is called at the end of a poll in which
    /// they passed it. Replaces an earlier limit.
    pub fn set_limit(&self, bytes: i64, callback: Callback) {
        let before = {
            let mut place = self.callback();
            self.limit.store(bytes, Ordering::Relaxed);
            place.replace(callback)
        };
        // Its destructor may call this function.
        drop(before);
    }

    fn callback(&self) -> MutexGuard<'_, Option<Callback>> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one operation. Returns whether it passed the limit.
    #[inline]
    fn change(&self, bytes: i64, blocks: i64) -> bool {
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        if blocks != 0 {
            self.blocks.add(blocks, blocks, is_shared);
        }
        let before = self.bytes.add(bytes, bytes, is_shared);
        let limit = self.limit.load(Ordering::Relaxed);
        let is_passed = before <= limit && limit < before.wrapping_add(bytes);
        if is_passed {
            self.is_passed.store(true, Ordering::Relaxed);
        }
        is_passed
    }

    /// Returns whether operations may be added at the end of a poll, because the maximum of a poll
    /// alone shows the maximum of the account.
    fn can_be_deferred(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit == i64::MAX && !self.is_shared.load(Ordering::Relaxed)
    }

    /// Adds the counts of a poll that has ended.
    fn add(&self, counts: &Counts) {
        let is_shared = self.is_shared.load(Ordering::Relaxed);
        let add = |to: &AtomicU64, counted: &Cell<u64>| match is_shared {
            true => drop(to.fetch_add(counted.get(), Ordering::Relaxed)),
            false => to.store(
                to.load(Ordering::Relaxed) + counted.get(),
                Ordering::Relaxed,
            ),
        };
        add(&self.allocations, &counts.allocations);
        add(&self.frees, &counts.frees);
        add(&self.allocated_bytes, &counts.allocated_bytes);
        add(&self.freed_bytes, &counts.freed_bytes);
    }
}

/// The accounts that a measurement adds to: those from `first` outwards to `end`, which is not
/// charged.
pub(super) struct Charge {
    first: *const Totals,
    /// The first account to which each operation is added. Inner accounts are updated when the poll
    /// ends.
    at_once: Cell<*const Totals>,
    end: *const Totals,
    /// Whether an operation passed a limit.
    has_passed: Cell<bool>,
}

impl Charge {
    fn new(first: &Arc<Totals>, end: *const Totals) -> Self {
        let first = Arc::as_ptr(first);
        let charge = Self {
            first,
            at_once: Cell::new(first),
            end,
            has_passed: Cell::new(false),
        };
        let deferred = charge
            .accounts(first)
            .take_while(|account| account.can_be_deferred());
        if let Some(last) = deferred.last() {
            charge.at_once.set(last.outer());
        }
        charge
    }

    /// Returns the charged accounts from `first` outwards.
    fn accounts(&self, first: *const Totals) -> impl Iterator<Item = &Totals> {
        let mut next = first;
        std::iter::from_fn(move || {
            if ptr::eq(next, self.end) {
                return None;
            }
            // SAFETY: `charged` borrows the first account, which owns those outside it; `end` is one of
            // them, or null behind the last.
            let account = unsafe { &*next };
            next = account.outer();
            Some(account)
        })
    }

    /// Adds one operation. For hooks.
    #[inline]
    pub(super) fn change(&self, allocated: Option<usize>, freed: Option<usize>) {
        let at_once = self.at_once.get();
        if !ptr::eq(at_once, self.end) {
            self.change_at_once(at_once, allocated, freed);
        }
    }

    fn change_at_once(&self, first: *const Totals, allocated: Option<usize>, freed: Option<usize>) {
        let amount = |size: Option<usize>| size.map_or(0, |size| size as i64);
        let bytes = amount(allocated) - amount(freed);
        let blocks = i64::from(allocated.is_some()) - i64::from(freed.is_some());
        for account in self.accounts(first) {
            if account.change(bytes, blocks) {
                self.has_passed.set(true);
            }
        }
    }

    /// Adds what was deferred. From now on, each operation is added at once.
    fn settle(&self, counts: &Counts) {
        let at_once = self.at_once.replace(self.first);
        for account in self.accounts(self.first) {
            if ptr::eq(account, at_once) {
                break;
            }
            let net =
                |more: &Cell<u64>, less: &Cell<u64>| more.get().wrapping_sub(less.get()) as i64;
            let bytes = net(&counts.allocated_bytes, &counts.freed_bytes);
            let blocks = net(&counts.allocations, &counts.frees);
            account.bytes.add(bytes, counts.max_bytes.get(), false);
            account.blocks.add(blocks, counts.max_blocks.get(), false);
        }
    }
}

/// Returns the active measurements of the calling thread that are charged to accounts.
fn charges() -> impl Iterator<Item = (&'static Counts, &'static Charge)> {
    let mut next = ACTIVE.get();
    let counts = std::iter::from_fn(move || {
        // SAFETY: counts in the list are valid, by the contract of `begin`. The callers keep no
        // reference beyond their own return.
        let counts = unsafe { next.as_ref() }?;
        next = counts.next.get();
        Some(counts)
    });
    counts.filter_map(|counts| Some((counts, counts.charge.as_ref()?)))
}

/// Returns the innermost account to which the calling thread's operations are charged, for another
/// task.
pub fn inherited_account() -> Option<Arc<Totals>> {
    let (_, innermost) = charges().next()?;
    for (counts, charge) in charges() {
        charge.settle(counts);
    }
    // SAFETY: the address is an `Arc`'s, which `charged` borrows while the counts are in the list.
    let account = unsafe {
        Arc::increment_strong_count(innermost.first);
        Arc::from_raw(innermost.first)
    };
    account.share();
    Some(account)
}

/// Returns whether the calling thread's operations are charged to `account`.
fn is_charged(account: *const Totals) -> bool {
    let mut charged = charges().flat_map(|(_, charge)| charge.accounts(charge.first));
    charged.any(|charged| ptr::eq(charged, account))
}

/// Returns an account and those outside it.
fn chain(account: &Arc<Totals>) -> impl Iterator<Item = &Arc<Totals>> {
    std::iter::successors(Some(account), |account| account.outer.as_ref())
}

/// Calls `work`, and charges what the calling thread allocates and frees meanwhile to `account` and to
/// those outside it. Then calls the callbacks of limits that were passed; not after a panic.
pub fn charged<R>(account: &Arc<Totals>, work: impl FnOnce() -> R) -> R {
    let end = chain(account)
        .map(Arc::as_ptr)
        .find(|&outer| is_charged(outer));
    let end = end.unwrap_or(ptr::null());
    if ptr::eq(end, Arc::as_ptr(account)) {
        return work();
    }
    let counts = Counts::all(None, Some(Charge::new(account, end)));
    let section = Section(&counts);
    // SAFETY: the section ends the measurement before the counts are dropped.
    unsafe { begin(&counts) };
    let result = work();
    drop(section);
    let charge = counts.charge.as_ref().expect("it was set above");
    if charge.has_passed.get() {
        call_back(account);
    }
    result
}

/// Calls the callbacks of the limits that were passed, for an account and those outside it.
#[cold]
fn call_back(account: &Arc<Totals>) {
    for account in chain(account) {
        if account.is_passed.swap(false, Ordering::Relaxed) {
            let callback = account.callback().clone();
            if let Some(callback) = callback {
                callback(account);
            }
        }
    }
}

/// A measurement that adds to accounts when it ends, also by a panic.
struct Section<'a>(&'a Counts);

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let counts = self.0;
        end(counts);
        if let Some(charge) = &counts.charge {
            charge.settle(counts);
            charge
                .accounts(charge.first)
                .for_each(|account| account.add(counts));
        }
    }
}
