//! Accounts of memory that no allocator knows, such as a buffer pool or an arena. The ledger counts
//! them, so all accounts and the heap are read at the same instant.

use std::ptr;

use plimsoll_sys::primitives::{AtomicPtr, Ordering};

use crate::alloc::counts::{self, AccountField, MAX_ACCOUNTS};
use crate::stats::HeapStats;

/// A name for memory that the program manages itself, with its byte counts.
///
/// Memory is *reserved* when addresses are set aside for it, and *committed* when it may be used:
///
/// ```
/// use plimsoll::stats::{self, Account};
///
/// static BLOCK_CACHE: Account = Account::new("block-cache");
///
/// # fn main() {
/// BLOCK_CACHE.reserve(1 << 20); // mmap(PROT_NONE)
/// BLOCK_CACHE.commit(64 << 10); // mprotect, or what is about to be written to
/// BLOCK_CACHE.release(16 << 10); // madvise(MADV_DONTNEED)
/// let accounts = stats::accounts();
/// assert_eq!(accounts[0].name, "block-cache");
/// assert_eq!((accounts[0].reserved, accounts[0].committed), (1 << 20, 48 << 10));
///
/// BLOCK_CACHE.release(48 << 10); // munmap, of all
/// BLOCK_CACHE.unreserve(1 << 20);
/// # }
/// ```
///
/// A pool that obtains and returns its memory as a whole needs only [`commit`](Self::commit) and
/// [`release`](Self::release). A pool should count before it obtains memory and after it returns
/// memory: then it never holds more than is counted.
///
/// The methods are safe to call from allocator hooks: they neither allocate nor lock nor block nor
/// fail. They take some nanoseconds, and any thread may call them, also before `main` and in the
/// child of a fork. A release beyond the counted bytes is not refused; [`AccountStats::excess`]
/// reports it.
///
/// The first [`MOST`](Self::MOST) accounts in use have separate figures. All later ones are summed
/// in one called "(other accounts)".
#[derive(Debug)]
pub struct Account {
    name: &'static str,
}

/// One row for each account in use, in the order of first use. The last row is shared by all
/// accounts that found no free row.
static ACCOUNTS: [AtomicPtr<Account>; MAX_ACCOUNTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_ACCOUNTS];

/// The last row.
const OTHERS: usize = MAX_ACCOUNTS - 1;

static OTHER_ACCOUNTS: Account = Account::new("(other accounts)");

impl Account {
    /// The maximum number of accounts with separate figures.
    pub const MOST: usize = OTHERS;

    /// Creates an account, for a static. [`accounts()`] lists it from its first use on. Two
    /// accounts with the same name remain separate.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// Returns the account's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds `bytes` of reserved address space to the account.
    pub fn reserve(&'static self, bytes: usize) {
        counts::account(self.row(), AccountField::Reserved, bytes);
    }

    /// Removes `bytes` of address space from the account: undoes [`reserve`](Self::reserve).
    pub fn unreserve(&'static self, bytes: usize) {
        counts::account(self.row(), AccountField::Unreserved, bytes);
    }

    /// Adds `bytes` of usable memory to the account.
    pub fn commit(&'static self, bytes: usize) {
        counts::account(self.row(), AccountField::Committed, bytes);
    }

    /// Records that `bytes` were returned to the system: undoes [`commit`](Self::commit).
    pub fn release(&'static self, bytes: usize) {
        counts::account(self.row(), AccountField::Released, bytes);
    }

    /// Returns the account's row, and claims the first free one at the first use. Two threads that
    /// search at once find the same row: rows are claimed in order and never freed.
    fn row(&'static self) -> usize {
        let this = ptr::from_ref(self).cast_mut();
        let is_own = |row: &AtomicPtr<Self>| {
            let found = row.load(Ordering::Acquire);
            found == this
                || found.is_null()
                    && match row.compare_exchange(
                        ptr::null_mut(),
                        this,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    ) {
                        Ok(_) => true,
                        Err(other) => other == this,
                    }
        };
        match ACCOUNTS[..OTHERS].iter().position(is_own) {
            Some(row) => row,
            None => {
                let others = ptr::from_ref(&OTHER_ACCOUNTS).cast_mut();
                ACCOUNTS[OTHERS].store(others, Ordering::Release);
                OTHERS
            }
        }
    }
}

/// The counts of an [`Account`] at one instant. All figures are exact, in bytes.
///
/// ```
/// use plimsoll::stats::{self, Account};
///
/// static BUFFERS: Account = Account::new("buffers");
///
/// BUFFERS.commit(64 << 10);
/// let accounts = stats::accounts();
/// let buffers = accounts.iter().find(|account| account.name == "buffers").unwrap();
/// assert_eq!((buffers.committed, buffers.address_space()), (64 << 10, 64 << 10));
/// assert_eq!(buffers.excess, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountStats {
    /// The account's name.
    pub name: &'static str,
    /// Total reserved less total unreserved; 0 if negative.
    pub reserved: u64,
    /// Total committed less total released; 0 if negative.
    pub committed: u64,
    /// Total ever reserved; never falls.
    pub total_reserved: u64,
    /// Total ever committed; never falls.
    pub total_committed: u64,
    /// The inconsistency of the account: bytes unreserved or released beyond those counted, and,
    /// for an account that ever reserved, bytes committed beyond those reserved. 0 unless the
    /// program miscounts, or counts a release before its commit.
    pub excess: u64,
}

/// Returns the counts of all accounts in use, in the order of first use, read at one instant as in
/// [`heap_stats()`](super::heap_stats()).
///
/// A reading that includes an event includes every event that happened before it, also in other
/// threads that synchronized with its thread. So no reading shows memory as committed that is not
/// yet reserved.
///
/// Not for signal handlers, and not for hooks.
pub fn accounts() -> Vec<AccountStats> {
    heap_stats_with_accounts().1
}

/// Returns the heap's counts and the counts of all accounts, at the same instant.
///
/// Not for signal handlers, and not for hooks.
pub fn heap_stats_with_accounts() -> (HeapStats, Vec<AccountStats>) {
    let cut = super::heap_stats::cut();
    let heap = HeapStats::from_cut(&cut);
    // An account claims its row before it counts, so every count in the cut has a row.
    let rows = ACCOUNTS.iter().zip(&cut.delta.accounts);
    let accounts = rows.filter_map(|(account, words)| {
        let account = account.load(Ordering::Acquire);
        // SAFETY: a row is null or holds a `&'static Account`, which `row` stored.
        let account = unsafe { account.as_ref() }?;
        Some(AccountStats::new(account.name, words))
    });
    (heap, accounts.collect())
}

impl AccountStats {
    fn new(name: &'static str, words: &[u64; AccountField::COUNT]) -> Self {
        let word = |of: AccountField| words[of as usize];
        let (reserved, committed) = (word(AccountField::Reserved), word(AccountField::Committed));
        let (unreserved, released) = (word(AccountField::Unreserved), word(AccountField::Released));
        let mut stats = Self {
            name,
            reserved: reserved.saturating_sub(unreserved),
            committed: committed.saturating_sub(released),
            total_reserved: reserved,
            total_committed: committed,
            excess: unreserved
                .saturating_sub(reserved)
                .saturating_add(released.saturating_sub(committed)),
        };
        if reserved > 0 {
            let beyond = stats.committed.saturating_sub(stats.reserved);
            stats.excess = stats.excess.saturating_add(beyond);
        }
        stats
    }

    /// Returns the address space of the account: reserved bytes, or committed bytes if those are
    /// more.
    pub fn address_space(&self) -> u64 {
        self.reserved.max(self.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_accounts_are_reported() {
        let stats = |words| AccountStats::new("", &words);
        let of = |stats: AccountStats| (stats.reserved, stats.committed, stats.excess);
        // Reserved, unreserved, committed, released.
        assert_eq!(of(stats([9, 2, 5, 1])), (7, 4, 0));
        assert_eq!(of(stats([0, 0, 5, 1])), (0, 4, 0));
        assert_eq!(of(stats([9, 2, 9, 1])), (7, 8, 1));
        assert_eq!(of(stats([9, 9, 9, 1])), (0, 8, 8));
        assert_eq!(of(stats([1, 9, 1, 9])), (0, 0, 16));
        assert_eq!(of(stats([0, u64::MAX, 0, u64::MAX])), (0, 0, u64::MAX));
    }
}
