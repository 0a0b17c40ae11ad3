//! The counts of all allocations of one instant, and the program's accounts.

mod account;
mod heap_stats;

pub use account::{Account, AccountStats, accounts, heap_stats_with_accounts};
pub use heap_stats::{ClassCounts, HeapStats, LargeCounts, heap_stats};
