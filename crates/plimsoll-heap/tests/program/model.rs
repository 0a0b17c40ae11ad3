//! Sequences of all operations, against a model of the heap.

use std::alloc::{GlobalAlloc, Layout};

use plimsoll_heap::{Heap, size_class};

/// What decides on the next operation and its size.
pub trait Choices {
    /// Returns a number that the caller reduces to its range.
    fn next(&mut self) -> usize;

    fn layout(&mut self) -> Layout {
        let size = match self.next() % 16 {
            0..12 => 1 + self.next() % 1024,
            12..14 => 1 + self.next() % 40_000,
            14 => 1 + self.next() % 300_000,
            _ => 1 + self.next() % 3,
        };
        let align = match self.next() % 8 {
            0 => 1 << (self.next() % 15),
            _ => 8,
        };
        Layout::from_size_align(size, align).unwrap()
    }
}

/// A generator of numbers, the same for the same seed (xorshift).
pub struct Random(pub u64);

impl Choices for Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }
}

/// A live block. Its bytes have the low byte of its number: all of them in one block of [`COMPLETE`], and
/// [`ENDS`] at both ends of the others.
struct Block {
    address: *mut u8,
    layout: Layout,
    number: u8,
}

const COMPLETE: u8 = 16;
const ENDS: usize = 32;

impl Block {
    fn new(address: *mut u8, layout: Layout, number: u8) -> Self {
        assert!(
            !address.is_null() && address.addr() % layout.align() == 0,
            "{layout:?}"
        );
        let block = Self {
            address,
            layout,
            number,
        };
        for (start, length) in block.parts(layout.size()) {
            // SAFETY: the part lies in the block.
            unsafe { address.add(start).write_bytes(number, length) };
        }
        block
    }

    /// Returns the parts of the first `length` bytes that have the number.
    fn parts(&self, length: usize) -> [(usize, usize); 2] {
        let size = self.layout.size();
        if self.number % COMPLETE == 0 || size <= 2 * ENDS {
            return [(0, length), (0, 0)];
        }
        let last = size - ENDS;
        [(0, length.min(ENDS)), (last, length.saturating_sub(last))]
    }

    /// Panics if one of the first `length` bytes has changed.
    fn check(&self, length: usize) {
        for (start, length) in self.parts(length) {
            if length == 0 {
                continue;
            }
            // SAFETY: the part lies in the block, and was written to.
            let bytes = unsafe { std::slice::from_raw_parts(self.address.add(start), length) };
            assert!(
                bytes.iter().all(|&byte| byte == self.number),
                "{:?}",
                self.layout
            );
        }
    }
}

/// Returns the counted size of a layout: the first class that is large and aligned enough, or as
/// requested.
fn counted(layout: Layout) -> u64 {
    let (size, align) = (layout.size(), layout.align());
    if size > size_class::LARGEST || align > 8192 {
        return size as u64;
    }
    let suffices = |class: &&u32| **class as usize >= size && **class as usize % align == 0;
    let class = size_class::SIZES[1..].iter().find(suffices);
    u64::from(*class.expect("the largest class suffices"))
}

/// Runs operations, and compares contents and alignments with the model. Returns their number.
///
/// Compares the bytes after every `compared` operations, if there is such a number and the program has no
/// other blocks in the heap.
pub fn run(random: &mut impl Choices, operations: usize, compared: Option<usize>) -> usize {
    let mut live: Vec<Block> = Vec::with_capacity(3000);
    let before = plimsoll_heap::stats().heap_alloc;
    let mut bytes = 0;
    for operation in 0..operations {
        let number = operation as u8;
        // SAFETY: layouts are valid; each block is used with its layout until it is freed, once.
        unsafe {
            match random.next() % 8 {
                0..3 if live.len() < live.capacity() => {
                    let layout = random.layout();
                    live.push(Block::new(Heap.alloc(layout), layout, number));
                    bytes += counted(layout);
                }
                3 if live.len() < live.capacity() => {
                    let layout = random.layout();
                    let address = Heap.alloc_zeroed(layout);
                    assert!(!address.is_null());
                    let bytes_of_block = std::slice::from_raw_parts(address, layout.size());
                    assert!(bytes_of_block.iter().all(|&byte| byte == 0), "{layout:?}");
                    live.push(Block::new(address, layout, number));
                    bytes += counted(layout);
                }
                4 if !live.is_empty() => {
                    let place = random.next() % live.len();
                    let old = live.swap_remove(place);
                    let align = old.layout.align();
                    let layout = Layout::from_size_align(random.layout().size(), align).unwrap();
                    let address = Heap.realloc(old.address, old.layout, layout.size());
                    let kept = Block { address, ..old };
                    kept.check(kept.layout.size().min(layout.size()));
                    live.push(Block::new(address, layout, number));
                    bytes = bytes + counted(layout) - counted(kept.layout);
                }
                _ if !live.is_empty() => {
                    let place = random.next() % live.len();
                    let block = live.swap_remove(place);
                    block.check(block.layout.size());
                    Heap.dealloc(block.address, block.layout);
                    bytes -= counted(block.layout);
                }
                _ => {}
            }
        }
        if compared.is_some_and(|compared| operation % compared == 0) {
            let stats = plimsoll_heap::stats();
            check(&stats);
            assert_eq!(stats.heap_alloc - before, bytes);
        }
    }
    for block in live.drain(..) {
        block.check(block.layout.size());
        // SAFETY: the block is freed with its layout, once.
        unsafe { Heap.dealloc(block.address, block.layout) };
    }
    operations
}

/// The number of operations: `PLIMSOLL_HEAP_OPERATIONS`, or few.
pub fn operations() -> usize {
    std::env::var("PLIMSOLL_HEAP_OPERATIONS").map_or(300_000, |number| {
        number
            .parse()
            .expect("PLIMSOLL_HEAP_OPERATIONS is a number")
    })
}

/// Panics if figures of one instant contradict each other.
pub fn check(stats: &plimsoll_heap::HeapStats) {
    for class in stats.by_class {
        assert!(class.frees <= class.mallocs, "{class:?}");
    }
    assert!(
        stats.large.frees <= stats.large.mallocs,
        "{:?}",
        stats.large
    );
    let (alloc, inuse) = (stats.heap_alloc, stats.heap_inuse);
    assert!(alloc <= inuse, "{alloc} bytes in {inuse}");
    assert_eq!(inuse + stats.heap_idle, stats.heap_sys);
    assert!(stats.heap_released <= stats.heap_idle);
    let mallocs: u64 = stats.by_class.iter().map(|class| class.mallocs).sum();
    assert_eq!(mallocs + stats.large.mallocs, stats.mallocs);
}
