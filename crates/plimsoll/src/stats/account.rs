//! Accounts of memory that no allocator knows of: a buffer pool's, an arena's. What they count is
//! counted in the ledger, so it is of one instant with the heap's counts, and of all accounts.

use std::ptr;

use crate::alloc::counts::{self, MOST_ACCOUNTS, Of};
use crate::primitives::{AtomicPtr, Ordering};
use crate::stats::HeapStats;

/// A name for memory that the program manages itself, and how much there is of it.
///
/// Memory is *reserved* when there are addresses for it, and *committed* when it may be used:
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
/// A pool that takes its memory as a whole and gives it back as a whole can do with
/// [`commit`](Self::commit) and [`release`](Self::release) alone. Who counts before the memory is
/// there, and, giving back, before it is gone, has never more than is counted.
///
/// The methods are for hooks of allocators as well: they neither allocate nor lock nor block nor
/// fail, take some nanoseconds, and may be called by any thread, before `main`, and in the child of
/// a fork. Giving back what was never there is not refused: it can be seen in
/// [`AccountStats::excess`].
///
/// There is room for [`MOST`](Self::MOST) of them that were ever used; what further ones
/// count is together in one called "(other accounts)".
#[derive(Debug)]
pub struct Account {
    name: &'static str,
}

/// One row for each account that was ever used, in the order of their first use. The last one is
/// for those that found none.
static ACCOUNTS: [AtomicPtr<Account>; MOST_ACCOUNTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_ACCOUNTS];

/// The last row.
const OTHERS: usize = MOST_ACCOUNTS - 1;

static OTHER_ACCOUNTS: Account = Account::new("(other accounts)");

impl Account {
    /// How many accounts can have figures of their own.
    pub const MOST: usize = OTHERS;

    /// An account, for a static. It is in [`accounts()`] from its first use on. Two of the same
    /// name are two accounts.
    pub const fn new(name: &'static str) -> Self {
        Self { name }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// So many bytes of addresses are the account's from here on.
    pub fn reserve(&'static self, bytes: usize) {
        counts::account(self.row(), Of::Reserved, bytes);
    }

    /// So many bytes of addresses are no longer the account's: undoes [`reserve`](Self::reserve).
    pub fn unreserve(&'static self, bytes: usize) {
        counts::account(self.row(), Of::Unreserved, bytes);
    }

    /// So many bytes may be in memory from here on.
    pub fn commit(&'static self, bytes: usize) {
        counts::account(self.row(), Of::Committed, bytes);
    }

    /// So many bytes were given back to the system: undoes [`commit`](Self::commit).
    pub fn release(&'static self, bytes: usize) {
        counts::account(self.row(), Of::Released, bytes);
    }

    /// The row of the account: the first one that no other has. Two threads that look for it at
    /// once find the same one, for rows are taken in their order and never given back.
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

/// What an [`Account`] has counted up to one instant. All figures are exact, and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountStats {
    /// The account's name.
    pub name: &'static str,
    /// What is reserved: ever reserved, less what was unreserved; 0 if that is less than nothing.
    pub reserved: u64,
    /// What is committed: ever committed, less what was released; 0 if that is less than nothing.
    pub committed: u64,
    /// Ever reserved; never falls.
    pub total_reserved: u64,
    /// Ever committed; never falls.
    pub total_committed: u64,
    /// By how much the account does not add up: what was unreserved or released beyond what there
    /// was, and, of an account that ever reserved, what is committed beyond what is reserved. 0
    /// unless the program counts wrongly, or counts the second before the first.
    pub excess: u64,
}

/// What all accounts have that were ever used, in the order of their first use, all at one instant,
/// as [`heap_stats()`](super::heap_stats()) is read.
///
/// An event that comes before another, in a thread or by what threads say to each other, is in it
/// if the other is: so no reading shows as committed what is not yet reserved.
///
/// Not for signal handlers, and not for hooks.
pub fn accounts() -> Vec<AccountStats> {
    heap_stats_with_accounts().1
}

/// The heap's counts and those of all accounts, of the same instant.
///
/// Not for signal handlers, and not for hooks.
pub fn heap_stats_with_accounts() -> (HeapStats, Vec<AccountStats>) {
    let cut = super::heap_stats::cut();
    // What was counted before the cut is in a row that was taken before.
    let rows = ACCOUNTS.iter().zip(&cut.delta.accounts);
    let accounts = rows.filter_map(|(account, words)| {
        let account = account.load(Ordering::Acquire);
        // SAFETY: rows hold accounts that are static.
        let account = unsafe { account.as_ref() }?;
        Some(AccountStats::new(account.name, words))
    });
    (HeapStats::of(&cut), accounts.collect())
}

impl AccountStats {
    fn new(name: &'static str, words: &[u64; Of::COUNT]) -> Self {
        let word = |of: Of| words[of as usize];
        let (reserved, committed) = (word(Of::Reserved), word(Of::Committed));
        let (unreserved, released) = (word(Of::Unreserved), word(Of::Released));
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

    /// How much of the address space it is: what is reserved, or, if that is more, committed.
    pub fn address_space(&self) -> u64 {
        self.reserved.max(self.committed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_add_up_is_said() {
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
