//! The central lists: for each class, a stack of free blocks in front of the class's spans.
//!
//! Lists of processors move blocks to and from here in batches. Blocks of a span that is full of free
//! blocks return to the page heap. An operation that finds no list open is done here, and counted
//! here.

use crate::counted_lock::{CountedLock, Epoch, Owner};
use crate::invalid;
use crate::pages::{Id, PageHeap, Spans, Use};
use crate::size_class::{CLASSES, SIZES, SPAN_BLOCKS, SPAN_PAGES, block_at};

/// The counts of a class's central list.
pub(crate) mod count {
    /// Blocks allocated without a list.
    pub(crate) const ALLOCATED: usize = 0;
    /// Blocks freed without a list.
    pub(crate) const FREED: usize = 1;
    /// Blocks outside the heap that are counted as allocated and not as freed.
    pub(crate) const OUTSIDE: usize = 2;
    /// Pages of spans.
    pub(crate) const PAGES: usize = 3;
    pub(crate) const COUNTS: usize = 4;
}

/// The maximum number of blocks of a stack, and of their bytes.
const STACK_BLOCKS: usize = 512;
const STACK_BYTES: usize = 128 * 1024;

/// Lists of partly free spans, by the share of free blocks: blocks come from the fullest spans, so that
/// the others become empty.
const LISTS: usize = 4;

/// The maximum number of blocks that move at once.
pub(crate) const MAX_BATCH: usize = 32;

/// The number of blocks of each class that move at once.
pub(crate) const BATCH: [u8; CLASSES] = {
    let mut batch = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let blocks = 16 * 1024 / SIZES[class] as usize;
        batch[class] = if blocks > MAX_BATCH {
            MAX_BATCH as u8
        } else if blocks < 2 {
            2
        } else {
            blocks as u8
        };
        class += 1;
    }
    batch
};

/// The central lists of all classes.
pub(crate) struct Central {
    classes: [CountedLock<Class, { count::COUNTS }>; CLASSES],
}

struct Class {
    stack: [usize; STACK_BLOCKS],
    height: usize,
    /// Spans with free blocks.
    partial: [Option<Id>; LISTS],
}

impl Central {
    pub(crate) const fn new() -> Self {
        Self {
            classes: [const {
                CountedLock::new(Class {
                    stack: [0; STACK_BLOCKS],
                    height: 0,
                    partial: [None; LISTS],
                })
            }; CLASSES],
        }
    }

    /// Returns the lock of a class with its counts.
    pub(crate) fn counted_lock(&self, class: usize) -> &CountedLock<impl Sized, { count::COUNTS }> {
        &self.classes[class]
    }

    /// Takes free blocks of a class, as many as `blocks` has places. Returns fewer if memory is
    /// lacking. `is_counted` counts them as allocated.
    pub(crate) fn take(
        &self,
        pages: &PageHeap,
        epoch: &Epoch,
        class: usize,
        blocks: &mut [usize],
        is_counted: bool,
    ) -> usize {
        let mut owner = self.classes[class].lock(epoch);
        let state = &mut *owner;
        let mut taken = state.height.min(blocks.len());
        state.height -= taken;
        blocks[..taken].copy_from_slice(&state.stack[state.height..state.height + taken]);
        while taken < blocks.len() {
            let from_span = take_from_spans(&mut owner, pages, epoch, class, &mut blocks[taken..]);
            if from_span == 0 {
                break;
            }
            taken += from_span;
        }
        if is_counted {
            owner.add(count::ALLOCATED, taken as u64);
        }
        taken
    }

    /// Returns free blocks of a class. `is_counted` counts them as freed.
    pub(crate) fn give(
        &self,
        pages: &PageHeap,
        epoch: &Epoch,
        class: usize,
        blocks: &[usize],
        is_counted: bool,
    ) {
        let mut owner = self.classes[class].lock(epoch);
        if is_counted {
            owner.add(count::FREED, blocks.len() as u64);
        }
        let state = &mut *owner;
        let maximum = STACK_BLOCKS.min(STACK_BYTES / SIZES[class] as usize);
        let stacked = blocks.len().min(maximum - state.height);
        let (stacked, rest) = blocks.split_at(stacked);
        state.stack[state.height..][..stacked.len()].copy_from_slice(stacked);
        state.height += stacked.len();
        for &block in rest {
            give_to_span(&mut owner, pages, epoch, class, block);
        }
    }

    /// Counts blocks outside the heap as allocated.
    pub(crate) fn count_outside_alloc(&self, epoch: &Epoch, class: usize) {
        let mut owner = self.classes[class].lock(epoch);
        owner.add(count::ALLOCATED, 1);
        owner.add(count::OUTSIDE, 1);
    }

    /// Counts the free of a block outside the heap.
    pub(crate) fn count_outside_free(&self, epoch: &Epoch, class: usize) {
        let mut owner = self.classes[class].lock(epoch);
        owner.add(count::FREED, 1);
        owner.add(count::OUTSIDE, 1_u64.wrapping_neg());
    }
}

type ClassOwner<'a> = Owner<'a, Class, { count::COUNTS }>;

/// Takes blocks of one span, a new one if no other has free blocks.
fn take_from_spans(
    owner: &mut ClassOwner<'_>,
    pages: &PageHeap,
    epoch: &Epoch,
    class: usize,
    blocks: &mut [usize],
) -> usize {
    let found = owner.partial.iter().find_map(|&head| head);
    let Some(id) = found.or_else(|| add_span(owner, pages, epoch, class)) else {
        return 0;
    };
    let mut spans = pages.spans();
    let span = &mut spans[id];
    let (start, size) = (pages.address(span.first), SIZES[class] as usize);
    let mut taken = 0;
    for (word, bits) in span.free_blocks.iter_mut().enumerate() {
        while *bits != 0 && taken < blocks.len() {
            let index = 64 * word + bits.trailing_zeros() as usize;
            *bits &= *bits - 1;
            blocks[taken] = start + index * size;
            taken += 1;
        }
    }
    span.free -= taken as u16;
    owner.list(&mut spans, class, id);
    taken
}

fn add_span(
    owner: &mut ClassOwner<'_>,
    pages: &PageHeap,
    epoch: &Epoch,
    class: usize,
) -> Option<Id> {
    let length = u32::from(SPAN_PAGES[class]);
    let id = pages.take(&mut pages.lock(epoch), length, 1, Use::Small)?;
    // The pages may be those of the next epoch, so what follows from them is, too.
    owner.follow(epoch);
    owner.add(count::PAGES, u64::from(length));
    let mut spans = pages.spans();
    let span = &mut spans[id];
    span.class = class as u8;
    span.free = SPAN_BLOCKS[class];
    for index in 0..usize::from(span.free) {
        span.free_blocks[index / 64] |= 1 << (index % 64);
    }
    owner.list(&mut spans, class, id);
    Some(id)
}

fn give_to_span(
    owner: &mut ClassOwner<'_>,
    pages: &PageHeap,
    epoch: &Epoch,
    class: usize,
    block: usize,
) {
    let mut spans = pages.spans();
    let found = pages.run_at(block).filter(|&id| {
        let span = &spans[id];
        span.state == Use::Small && usize::from(span.class) == class
    });
    let Some(id) = found else {
        invalid::free(block, "not in a span of its size");
    };
    let span = &mut spans[id];
    let Some(index) = block_at(class, block - pages.address(span.first)) else {
        invalid::free(block, "not the start of a block");
    };
    let bit = 1 << (index % 64);
    if span.free_blocks[index / 64] & bit != 0 {
        invalid::free(block, "freed twice");
    }
    span.free_blocks[index / 64] |= bit;
    span.free += 1;
    if span.free < SPAN_BLOCKS[class] {
        owner.list(&mut spans, class, id);
        return;
    }
    owner.unlist(&mut spans, id);
    let length = u64::from(SPAN_PAGES[class]);
    owner.add(count::PAGES, length.wrapping_neg());
    pages.give(&mut pages.lock(epoch), id);
}

impl Class {
    /// Puts a span into the list for its number of free blocks, or into none if it has none.
    fn list(&mut self, spans: &mut Spans, class: usize, id: Id) {
        let free = usize::from(spans[id].free);
        let list = (free * LISTS).div_ceil(usize::from(SPAN_BLOCKS[class]));
        let list = list.checked_sub(1).map(|list| list as u8);
        if spans[id].list == list {
            return;
        }
        self.unlist(spans, id);
        if let Some(list) = list {
            let head = &mut self.partial[usize::from(list)];
            spans.link(id, *head);
            *head = Some(id);
            spans[id].list = Some(list);
        }
    }

    fn unlist(&mut self, spans: &mut Spans, id: Id) {
        let Some(list) = spans[id].list.take() else {
            return;
        };
        let head = &mut self.partial[usize::from(list)];
        if *head == Some(id) {
            *head = spans.next(id);
        }
        spans.unlink(id);
    }
}
