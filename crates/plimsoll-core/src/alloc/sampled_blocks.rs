//! Memory for small sampled blocks, in a separate address range.
//!
//! A free must recognize a sampled block, and cannot afford a look-up. So a small sampled block
//! comes from here, not from the program's allocator: its address alone identifies it. About one
//! block in several thousand is sampled. Blocks above [`size_class::LARGEST`] stay in the program's
//! allocator (see [`super::sampled_inside`]), and so do all of a preloaded library.
//!
//! The range is cut into spans of 64 KiB, each for slots of one size. Free slots of a size form a
//! list; fresh ones come from the size's current span. Each slot has a note, elsewhere in memory,
//! with the sample that the block stands for. The notes of the first slots of 64 spans lie on one page,
//! because most forked children have few samples of each size, and each page is a page fault. Every
//! step is a compare-and-swap, without locks, so a signal handler may interrupt at any point.

use std::mem::offset_of;

use plimsoll_sys::os::region::Region;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::sampler::{AllocatedAt, Sample, Weight};
use crate::stack::{Bucket, CycleNumber};
use plimsoll_ledger::size_class;

/// Bytes of a span.
pub(super) const SPAN: usize = 64 * 1024;

/// Slots in a span of the smallest size.
const MAX_SLOTS: usize = SPAN / SLOT_SIZES[0];

/// The sizes of slots in bytes: four for each doubling, multiples of 16.
static SLOT_SIZES: [usize; 40] = [
    32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336,
    16384, 20480, 24576, 28672, 32768, SPAN,
];

/// The note of a slot in memory: a sample, or the link of a free slot.
#[repr(C)]
struct NoteEntry {
    bucket: AtomicU32,
    /// In a free slot, 1 + the next free slot, or 0. In a used slot, the cycle of the heap profile
    /// that counted the block.
    next_or_cycle: AtomicU32,
    weight: AtomicU64,
    born: AtomicU64,
}

/// The head of a span's notes.
#[repr(C, align(64))]
struct SpanHead {
    /// The index of the size of the slots.
    size: AtomicU32,
    /// The notes of the first slots.
    first: [NoteEntry; FIRST],
}

const _: () = assert!(size_of::<SpanHead>() == 64);

/// The number of notes in the head of a span.
const FIRST: usize = 2;

/// The number of spans whose heads lie together, on one page. The other notes of these spans follow.
const GROUP: usize = HEADS / size_of::<SpanHead>();

/// The bytes of the heads of a group: the smallest size of a page.
const HEADS: usize = 4096;

struct Size {
    /// 1 + the first free slot; the high half is a tag against reuse.
    free: AtomicU64,
    /// The current span: 1 + its number in the high half, the position of the next fresh slot in
    /// the low half.
    fresh: AtomicU64,
}

static BLOCKS: Region = Region::new();
static NOTES: Region = Region::new();
/// The number of spans assigned to sizes so far.
static SPANS: AtomicUsize = AtomicUsize::new(0);
/// 1 + a prepared span that lost a race against another thread's; 0 for none.
static SPARE: AtomicUsize = AtomicUsize::new(0);
static SIZES: [Size; SLOT_SIZES.len()] = [const {
    Size {
        free: AtomicU64::new(0),
        fresh: AtomicU64::new(0),
    }
}; SLOT_SIZES.len()];
/// Bytes of slots in use.
static BYTES_IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Sets the range to use. Called once.
pub(super) fn open(base: usize, length: usize) {
    // Without memory for notes, no block is ever placed here.
    if NOTES.reserve(notes_of(length / SPAN), 1) {
        BLOCKS.adopt(base, length.min(spans_in(NOTES.length()) * SPAN));
    }
}

/// The bytes of a span's notes after the heads of its group.
const NOTES_OF_SPAN: usize = (MAX_SLOTS - FIRST) * size_of::<NoteEntry>();

/// The bytes of a group's heads and notes.
const NOTES_OF_GROUP: usize = HEADS + GROUP * NOTES_OF_SPAN;

/// Returns the bytes of the notes of the first `spans` spans.
fn notes_of(spans: usize) -> usize {
    let Some(last) = spans.checked_sub(1) else {
        return 0;
    };
    last / GROUP * NOTES_OF_GROUP + HEADS + (last % GROUP + 1) * NOTES_OF_SPAN
}

/// Returns the number of spans whose notes fit into `bytes`.
fn spans_in(bytes: usize) -> usize {
    let rest = (bytes % NOTES_OF_GROUP).saturating_sub(HEADS);
    bytes / NOTES_OF_GROUP * GROUP + rest / NOTES_OF_SPAN
}

#[inline]
pub(super) fn contains(address: usize) -> bool {
    BLOCKS.contains(address)
}

/// Returns the bytes of memory made accessible for blocks and notes, and the part that blocks of
/// the program occupy.
pub fn bytes() -> (usize, usize) {
    let spans = SPANS.load(Ordering::Relaxed);
    (
        spans * SPAN + NOTES.committed(),
        BYTES_IN_USE.load(Ordering::Relaxed),
    )
}

/// Returns the address range of the blocks.
pub(super) fn range() -> std::ops::Range<usize> {
    BLOCKS.base()..BLOCKS.base() + BLOCKS.length()
}

/// Takes a slot for a block of `size` bytes, at most [`size_class::LARGEST`], and notes the sample.
/// Returns null if no slot is free, or for alignments larger than a span's. The slot is not zeroed.
pub(super) fn take(size: usize, align: usize, sample: Sample) -> *mut u8 {
    let Some(at) = size_for(size, align) else {
        return std::ptr::null_mut();
    };
    let Some(slot) = pop(&SIZES[at]).or_else(|| fresh(at)) else {
        return std::ptr::null_mut();
    };
    let entry = entry(slot);
    entry.bucket.store(sample.bucket.0, Ordering::Relaxed);
    entry.weight.store(sample.weight.0, Ordering::Relaxed);
    BYTES_IN_USE.fetch_add(size_class::counted_size(size), Ordering::Relaxed);
    address(slot, SLOT_SIZES[at]) as *mut u8
}

/// Returns the sample that a block stands for.
pub(super) fn sample(block: *mut u8) -> Sample {
    let entry = entry(slot_of(block).0);
    Sample {
        bucket: Bucket(entry.bucket.load(Ordering::Relaxed)),
        weight: Weight(entry.weight.load(Ordering::Relaxed)),
        cycle: CycleNumber(entry.next_or_cycle.load(Ordering::Relaxed)),
        born: AllocatedAt(entry.born.load(Ordering::Relaxed)),
    }
}

/// Notes the cycle and time of a recorded allocation, before another thread can free the block.
pub(super) fn note_recorded(block: *mut u8, sample: Sample) {
    let entry = entry(slot_of(block).0);
    entry.next_or_cycle.store(sample.cycle.0, Ordering::Relaxed);
    entry.born.store(sample.born.0, Ordering::Relaxed);
}

/// Frees the slot of a block of `size` bytes.
pub(super) fn give_back(block: *mut u8, size: usize) {
    let (slot, at) = slot_of(block);
    BYTES_IN_USE.fetch_sub(size_class::counted_size(size), Ordering::Relaxed);
    push(&SIZES[at], slot);
}

/// Returns the index of the slot size for a block. Slots of a power of two are aligned to it, since
/// spans are.
fn size_for(size: usize, align: usize) -> Option<usize> {
    let wanted = if align <= 16 {
        size
    } else {
        size.max(align).checked_next_power_of_two()?
    };
    let at = SLOT_SIZES.partition_point(|&slot| slot < wanted);
    (at < SLOT_SIZES.len()).then_some(at)
}

/// Returns a slot's number, from its span and its position there.
fn name(span: usize, position: usize) -> u32 {
    (span * MAX_SLOTS + position) as u32
}

fn address(slot: u32, size: usize) -> usize {
    let (span, position) = (slot as usize / MAX_SLOTS, slot as usize % MAX_SLOTS);
    BLOCKS.base() + span * SPAN + position * size
}

fn slot_of(block: *mut u8) -> (u32, usize) {
    let offset = block as usize - BLOCKS.base();
    let span = offset / SPAN;
    let at = head(span).size.load(Ordering::Relaxed) as usize;
    (name(span, offset % SPAN / SLOT_SIZES[at]), at)
}

fn entry(slot: u32) -> &'static NoteEntry {
    let address = NOTES.base() + place_of_note(slot);
    // SAFETY: the notes of a span are committed before any slot of it is assigned.
    unsafe { &*(address as *const NoteEntry) }
}

/// Returns the head of a span's notes.
fn head(span: usize) -> &'static SpanHead {
    let address = NOTES.base() + place_of_head(span);
    // SAFETY: the notes of a span, with its head, are committed before any slot of it is assigned.
    unsafe { &*(address as *const SpanHead) }
}

/// Returns the offset of a slot's note in the memory for notes.
fn place_of_note(slot: u32) -> usize {
    let (span, position) = (slot as usize / MAX_SLOTS, slot as usize % MAX_SLOTS);
    let (start, index) = match position.checked_sub(FIRST) {
        None => (place_of_head(span) + offset_of!(SpanHead, first), position),
        Some(after) => (notes_of(span + 1) - NOTES_OF_SPAN, after),
    };
    start + index * size_of::<NoteEntry>()
}

/// Returns the offset of a span's head in the memory for notes.
fn place_of_head(span: usize) -> usize {
    span / GROUP * NOTES_OF_GROUP + span % GROUP * size_of::<SpanHead>()
}

fn pop(size: &Size) -> Option<u32> {
    let mut head = size.free.load(Ordering::Acquire);
    loop {
        let slot = (head as u32).checked_sub(1)?;
        let next = entry(slot).next_or_cycle.load(Ordering::Relaxed);
        match size.free.compare_exchange_weak(
            head,
            retag(head, next),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => return Some(slot),
            Err(changed) => head = changed,
        }
    }
}

fn push(size: &Size, slot: u32) {
    let mut head = size.free.load(Ordering::Relaxed);
    loop {
        entry(slot)
            .next_or_cycle
            .store(head as u32, Ordering::Relaxed);
        match size.free.compare_exchange_weak(
            head,
            retag(head, slot + 1),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => return,
            Err(changed) => head = changed,
        }
    }
}

fn retag(head: u64, low: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(low)
}

/// Takes a slot that was never used: from the size's current span, or from a new one.
fn fresh(at: usize) -> Option<u32> {
    let slots = SPAN / SLOT_SIZES[at];
    let mut current = SIZES[at].fresh.load(Ordering::Acquire);
    loop {
        let (span, position) = ((current >> 32) as usize, current as u32 as usize);
        if span != 0 && position < slots {
            match SIZES[at].fresh.compare_exchange(
                current,
                current + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(name(span - 1, position)),
                Err(changed) => {
                    current = changed;
                    continue;
                }
            }
        }
        let new = new_span()?;
        head(new).size.store(at as u32, Ordering::Relaxed);
        let begun = (new as u64 + 1) << 32 | 1;
        match SIZES[at]
            .fresh
            .compare_exchange(current, begun, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => return Some(name(new, 0)),
            Err(changed) => {
                // Another thread was faster. The prepared span is kept for the next thread that
                // needs one; if one is kept already, its address space is lost.
                SPARE.store(new + 1, Ordering::Release);
                current = changed;
            }
        }
    }
}

fn new_span() -> Option<usize> {
    if let Some(spare) = SPARE.swap(0, Ordering::AcqRel).checked_sub(1) {
        return Some(spare);
    }
    take_span(&SPANS, |spans| {
        spans * SPAN <= BLOCKS.length()
            && BLOCKS.commit(spans * SPAN)
            && NOTES.commit(notes_of(spans))
    })
}

/// Takes the next span, if `commit` makes the memory of so many spans usable. Otherwise, the span is left for a later call.
fn take_span(taken: &AtomicUsize, commit: impl Fn(usize) -> bool) -> Option<usize> {
    let next = |span: usize| commit(span + 1).then_some(span + 1);
    taken
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_whose_memory_is_refused_is_not_lost() {
        let taken = AtomicUsize::new(0);
        assert_eq!(take_span(&taken, |_| true), Some(0));
        for _ in 0..3 {
            assert_eq!(take_span(&taken, |_| false), None);
        }
        assert_eq!(take_span(&taken, |spans| spans <= 2), Some(1));
        assert_eq!(take_span(&taken, |spans| spans <= 2), None);
    }

    #[test]
    fn notes_do_not_overlap_and_lie_in_the_memory_that_is_committed_for_them() {
        let mut all = Vec::new();
        for span in [0, 1, 2, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP - 1] {
            let end = notes_of(span + 1);
            let size = place_of_head(span);
            all.push(size..size + size_of::<AtomicU32>());
            for position in [0, 1, 2, 3, MAX_SLOTS - 2, MAX_SLOTS - 1] {
                let start = place_of_note(name(span, position));
                assert_eq!(start % align_of::<NoteEntry>(), 0);
                all.push(start..start + size_of::<NoteEntry>());
            }
            assert!(all.iter().all(|range| range.end <= end), "span {span}");
            assert_eq!(spans_in(end), span + 1);
            assert_eq!(spans_in(end - 1), span);
        }
        all.sort_by_key(|range| range.start);
        assert!(all.windows(2).all(|two| two[0].end <= two[1].start));
        assert_eq!((notes_of(0), spans_in(0), spans_in(HEADS)), (0, 0, 0));
        let mut first_of_all = (0..GROUP).flat_map(|span| [name(span, 0), name(span, 1)]);
        assert!(first_of_all.all(|slot| place_of_note(slot) < HEADS));
    }

    #[test]
    fn every_size_and_alignment_has_the_smallest_slot_that_fits() {
        for size in 1..=size_class::LARGEST {
            for align in [1, 8, 16, 32, 64, 4096, 32768] {
                let at = size_for(size, align).unwrap();
                assert!(SLOT_SIZES[at] >= size);
                assert_eq!(SLOT_SIZES[at] % align, 0);
                if align <= 16 && at > 0 {
                    assert!(
                        SLOT_SIZES[at - 1] < size,
                        "{size} in a slot of {}",
                        SLOT_SIZES[at]
                    );
                }
            }
        }
        assert_eq!(size_for(16, 2 * SPAN), None);
        assert!(SLOT_SIZES.iter().all(|size| size % 16 == 0));
    }
}
