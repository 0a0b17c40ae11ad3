//! A list: its layout, and the operations of its only user in ordinary Rust.

use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Backoff, Ordering, light_barrier};

/// Calls `operate` while `flag` announces an operation to the reader. `operate` loads the address of the
/// slots, and may use the list at that address.
#[allow(
    dead_code,
    reason = "on some processors, `arch` has the same in assembly"
)]
pub(crate) fn announced<T>(flag: &AtomicUsize, operate: impl FnOnce() -> T) -> T {
    flag.store(1, Ordering::Relaxed);
    // The reader's barrier is between its store of the address and its load of the flag.
    light_barrier();
    let result = operate();
    flag.store(0, Ordering::Release);
    result
}

/// Waits until an operation that is announced has ended.
pub(crate) fn wait_for_operation(flag: &AtomicUsize) {
    let mut backoff = Backoff::new();
    while flag.load(Ordering::Acquire) != 0 {
        backoff.wait();
    }
}

/// The head of a list. Its blocks follow.
#[repr(C)]
pub(crate) struct Head {
    /// Blocks that moved in from the central list, less those that moved out; see the module
    /// documentation.
    pub(crate) moved: [AtomicU64; 2],
    /// Allocations before the last batch.
    pub(crate) allocated: [AtomicU64; 2],
    /// The number of blocks, the number of allocations, and which sums are valid.
    pub(crate) word: AtomicU64,
    /// The maximum number of blocks; 0 in a closed list.
    pub(crate) limit: AtomicU64,
}

/// The bits of the word with the number of blocks.
const BLOCKS: u64 = 0xffff;

/// One allocation in the word.
const ALLOCATION: u64 = 1 << 16;

/// The position of the bit that selects the valid sums.
const SELECTED: u32 = 63;

/// The figures of a list at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) allocated: u64,
    pub(crate) freed: u64,
    pub(crate) blocks: u64,
}

impl Head {
    #[cfg(loom)]
    pub(crate) fn new(limit: u64) -> Self {
        let zero = || [AtomicU64::new(0), AtomicU64::new(0)];
        Self {
            moved: zero(),
            allocated: zero(),
            word: AtomicU64::new(0),
            limit: AtomicU64::new(limit),
        }
    }

    /// Reads the figures. The list is frozen, or the caller is its user.
    pub(crate) fn read(&self) -> Reading {
        let word = self.word.load(Ordering::Relaxed);
        let (selected, allocations, blocks) = parts(word);
        let moved = self.moved[selected].load(Ordering::Relaxed);
        let allocated = self.allocated[selected]
            .load(Ordering::Relaxed)
            .wrapping_add(allocations);
        Reading {
            allocated,
            freed: allocated.wrapping_add(blocks).wrapping_sub(moved),
            blocks,
        }
    }
}

/// The operations that the only user of a list makes.
#[allow(
    dead_code,
    reason = "on some processors, `arch` has the same in assembly"
)]
impl Head {
    /// Takes a block, and counts an allocation; `None` if the list is empty.
    pub(crate) fn pop(&self, blocks: &[AtomicU64]) -> Option<u64> {
        let word = self.word.load(Ordering::Relaxed);
        let index = (word & BLOCKS) as usize;
        let block = blocks[index.checked_sub(1)?].load(Ordering::Relaxed);
        self.word.store(word + ALLOCATION - 1, Ordering::Relaxed);
        Some(block)
    }

    /// Adds a block, and counts a free. Returns `false` if the list is full.
    pub(crate) fn push(&self, blocks: &[AtomicU64], block: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let index = word & BLOCKS;
        if index >= self.limit.load(Ordering::Relaxed) {
            return false;
        }
        blocks[index as usize].store(block, Ordering::Relaxed);
        self.word.store(word + 1, Ordering::Relaxed);
        true
    }

    /// Raises the limit by `places`, up to `capacity`.
    pub(crate) fn grow(&self, places: usize, capacity: usize) {
        let limit = self.limit.load(Ordering::Relaxed) + places as u64;
        self.limit
            .store(limit.min(capacity as u64), Ordering::Relaxed);
    }

    /// Adds a batch of blocks, and raises the limit by their number, up to `capacity`. Returns `false` if
    /// they do not fit.
    pub(crate) fn fill(&self, blocks: &[AtomicU64], batch: &[u64], capacity: usize) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let (index, added) = (word & BLOCKS, batch.len() as u64);
        let limit = self.limit.load(Ordering::Relaxed) + added;
        let limit = limit.min(capacity as u64);
        if index + added > limit {
            return false;
        }
        self.limit.store(limit, Ordering::Relaxed);
        for (place, &block) in blocks[index as usize..].iter().zip(batch) {
            place.store(block, Ordering::Relaxed);
        }
        self.commit_batch(word, batch.len() as i64);
        true
    }

    /// Takes a batch of blocks. Returns `false` if the list has not as many.
    pub(crate) fn drain(&self, blocks: &[AtomicU64], batch: &mut [u64]) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let index = (word & BLOCKS) as usize;
        let Some(first) = index.checked_sub(batch.len()) else {
            return false;
        };
        for (place, block) in blocks[first..index].iter().zip(batch.iter_mut()) {
            *block = place.load(Ordering::Relaxed);
        }
        self.commit_batch(word, -(batch.len() as i64));
        true
    }

    /// Adds `moved` blocks to the list, or takes them away.
    fn commit_batch(&self, word: u64, moved: i64) {
        let (selected, allocations, blocks) = parts(word);
        let other = 1 - selected;
        let add = |sums: &[AtomicU64; 2], amount: u64| {
            let sum = sums[selected].load(Ordering::Relaxed);
            sums[other].store(sum.wrapping_add(amount), Ordering::Relaxed);
        };
        add(&self.moved, moved as u64);
        add(&self.allocated, allocations);
        let blocks = blocks.wrapping_add_signed(moved);
        let word = (other as u64) << SELECTED | blocks;
        self.word.store(word, Ordering::Relaxed);
    }
}

/// Splits a word into the index of the valid sums, the allocations, and the blocks.
fn parts(word: u64) -> (usize, u64, u64) {
    let allocations = (word & !(1 << SELECTED)) / ALLOCATION;
    ((word >> SELECTED) as usize, allocations, word & BLOCKS)
}
