//! An experimental memory allocator whose free lists hold exact counts.
//!
//! Plimsoll counts around an allocator; this one counts inside it. An allocation takes a block from a free
//! list and counts itself by the same store, so exact statistics cost no instructions. [`stats()`] returns
//! all figures of one instant, also for pages.
//!
//! ```
//! #[global_allocator]
//! static HEAP: plimsoll_heap::Heap = plimsoll_heap::Heap;
//!
//! # fn main() {
//! let before = plimsoll_heap::stats();
//! let block = std::hint::black_box(vec![0_u8; 100]);
//! let after = plimsoll_heap::stats();
//! assert_eq!(after.mallocs - before.mallocs, 1);
//! assert_eq!(after.heap_alloc - before.heap_alloc, 112);
//! # drop(block);
//! # }
//! ```
//!
//! The [README](https://github.com/OWNER/plimsoll/tree/main/crates/plimsoll-heap) has measurements,
//! the design, and the cases for which another allocator is the better choice.

mod backend;
mod central;
mod counted_lock;
mod global;
mod heap;
mod invalid;
mod lists;
mod pages;
pub mod size_class;
mod stats;

pub use global::Heap;
pub use stats::{ClassStats, HeapStats, LargeStats, stats};
