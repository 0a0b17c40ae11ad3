//! The set of the blocks that count: those allocated while a profiler runs.
//!
//! A free must know whether its block counts: a block older than the profiler does not. The set has a
//! bit for each [`STEP`] bytes of address space, in leaves that exist where blocks were. Each operation
//! is one atomic instruction on one bit: there are no locks. The thread that has a block alone changes
//! its bit, after it received the address from the underlying allocator and before it returns it. The
//! allocator orders these threads, so relaxed operations suffice.
//!
//! The table of leaves and all leaves share a reservation. A leaf's memory is zero until it is used.

use plimsoll_sys::os::region::Region;
use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Ordering};

/// The least distance between the addresses of two blocks of the system's allocator, in bytes.
const STEP: usize = 16;

/// The bytes of address space that a leaf covers.
const COVERED: usize = 1 << 28;

/// The bits of addresses that the table of leaves covers, as user space has on 64-bit systems.
const ADDRESS_BITS: u32 = if usize::BITS < 48 { usize::BITS } else { 48 };

/// The bytes of the table of leaves.
const TABLE: usize = (1 << (ADDRESS_BITS - COVERED.trailing_zeros())) * size_of::<AtomicU32>();

/// The bytes of a leaf.
const LEAF: usize = COVERED / STEP / 8;

/// The number of leaves, enough for blocks in 256 GiB of address space. Tests fill all of them, and the
/// memory stays, so that forks of later tests would take long.
const MAX_LEAVES: usize = if cfg!(test) { 16 } else { 1024 };

/// A set of addresses.
pub(super) struct Blocks {
    region: Region,
    /// The number of leaves in use.
    leaves: AtomicUsize,
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self {
            region: Region::new(),
            leaves: AtomicUsize::new(0),
        }
    }

    /// Reserves the memory, once, and removes all blocks. Returns `false` if the system has no memory.
    /// Not for hooks; one thread at a time.
    pub(super) fn open(&self) -> bool {
        let (most, least) = (TABLE + MAX_LEAVES * LEAF, TABLE + LEAF);
        let is_reserved = self.region.length() > 0 || self.region.reserve(most, least);
        if !is_reserved || !self.region.commit(TABLE) {
            return false;
        }
        for leaf in 0..self.leaves.load(Ordering::Acquire) {
            let words = (0..LEAF / size_of::<AtomicUsize>()).map(|at| self.word(leaf, at));
            // Writing to all would give each page memory.
            words
                .filter(|word| word.load(Ordering::Relaxed) != 0)
                .for_each(|word| word.store(0, Ordering::Relaxed));
        }
        true
    }

    /// Adds a block. Returns `false` if there is no memory for it.
    #[inline]
    pub(super) fn insert(&self, block: usize) -> bool {
        let Some(entry) = self.entry(block) else {
            return false;
        };
        let leaf = match entry.load(Ordering::Acquire) {
            0 => match self.make_leaf(entry) {
                Some(leaf) => leaf,
                None => return false,
            },
            leaf => leaf as usize - 1,
        };
        let (at, bit) = place_of(block);
        self.word(leaf, at).fetch_or(bit, Ordering::Relaxed);
        true
    }

    /// Removes a block. Returns whether the set had it.
    #[inline]
    pub(super) fn remove(&self, block: usize) -> bool {
        let leaf = self.entry(block).map(|entry| entry.load(Ordering::Acquire));
        let Some(leaf) = leaf.and_then(|leaf| leaf.checked_sub(1)) else {
            return false;
        };
        let (at, bit) = place_of(block);
        let word = self.word(leaf as usize, at);
        // Most words have none: their blocks are older, and reading is cheaper.
        word.load(Ordering::Relaxed) & bit != 0
            && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Takes the next leaf for an entry of the table. Returns `None` without memory. If another thread
    /// is faster, its leaf is returned, and the one taken here stays unused.
    #[cold]
    #[inline(never)]
    fn make_leaf(&self, entry: &AtomicU32) -> Option<usize> {
        let mut leaf = self.leaves.load(Ordering::Acquire);
        loop {
            // Before the leaf is taken, so that a failure takes none.
            if leaf >= MAX_LEAVES || !self.region.commit(TABLE + (leaf + 1) * LEAF) {
                return None;
            }
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .leaves
                .compare_exchange_weak(leaf, leaf + 1, set, fetch)
            {
                Ok(_) => break,
                Err(other) => leaf = other,
            }
        }
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match entry.compare_exchange(0, leaf as u32 + 1, order.0, order.1) {
            Ok(_) => Some(leaf),
            Err(other) => Some(other as usize - 1),
        }
    }

    /// Returns the entry of the table for an address: the number of its leaf plus 1, or 0. Returns
    /// `None` before [`Blocks::open`], and for addresses that the table does not cover.
    #[inline]
    fn entry(&self, block: usize) -> Option<&AtomicU32> {
        let base = self.region.base();
        let at = block / COVERED;
        if base == 0 || at >= TABLE / size_of::<AtomicU32>() {
            return None;
        }
        // SAFETY: `open` committed the table, which has this entry.
        Some(unsafe { &*(base as *const AtomicU32).add(at) })
    }

    #[inline]
    fn word(&self, leaf: usize, at: usize) -> &AtomicUsize {
        let base = self.region.base() + TABLE + leaf * LEAF;
        // SAFETY: callers have the number of a leaf whose memory is committed, and a position in it.
        unsafe { &*(base as *const AtomicUsize).add(at) }
    }
}

/// Returns the position of an address' word in its leaf, and its bit in the word.
#[inline]
fn place_of(block: usize) -> (usize, usize) {
    let bit = block % COVERED / STEP;
    let bits = usize::BITS as usize;
    (bit / bits, 1 << (bit % bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_each_block_until_it_is_removed_or_the_set_is_opened_again() {
        let set = Blocks::new();
        assert!(!set.insert(0x1000), "it is not open");
        assert!(!set.remove(0x1000));
        assert!(set.open());
        let highest = ((1_u64 << ADDRESS_BITS) - 16) as usize;
        let blocks = [
            0x10,
            0x20,
            0x1000,
            COVERED - 16,
            COVERED,
            7 * COVERED + 48,
            highest,
        ];
        for block in blocks {
            assert!(!set.remove(block), "{block:x}");
            assert!(set.insert(block), "{block:x}");
        }
        for block in blocks {
            assert!(set.remove(block), "{block:x}");
            assert!(!set.remove(block), "{block:x}");
            assert!(set.insert(block));
        }
        assert!(set.open());
        for block in blocks {
            assert!(!set.remove(block), "{block:x}");
        }
    }

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn a_full_set_refuses_blocks_of_new_ranges_and_keeps_the_others() {
        let set = Blocks::new();
        assert!(set.open());
        let leaves = (set.region.length() - TABLE) / LEAF;
        let full = (0..=leaves)
            .find(|at| !set.insert(at * COVERED))
            .expect("it is full");
        assert_eq!(full, leaves);
        assert!(!set.insert(usize::MAX - 15), "beyond the table");
        assert!(set.insert(48));
        assert!(set.remove(48));
        assert!((0..leaves).all(|at| set.remove(at * COVERED)));
    }

    #[test]
    fn threads_that_add_to_one_range_at_once_lose_no_block() {
        let set = Blocks::new();
        assert!(set.open());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let set = &set;
                scope.spawn(move || {
                    for at in 0..10_000 {
                        assert!(set.insert((4 * at + thread) * STEP));
                    }
                    for at in 0..10_000 {
                        assert!(set.remove((4 * at + thread) * STEP));
                    }
                });
            }
        });
    }
}
