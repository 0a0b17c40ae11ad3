//! The pages of blocks in use that were never touched, or whose memory the program has returned.
//!
//! Blocks in use need not be resident. The addresses of large sampled blocks are known, so the kernel reports the
//! resident part of each, and its weight states for how many such blocks it stands. Smaller blocks count as touched:
//! they share pages with others.

use std::ops::Range;

use plimsoll_process::residency::PageTables;
use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::region::page_size;

use super::classify;
use plimsoll_core::alloc;
use plimsoll_ledger::size_class::LARGEST;

/// Bytes of blocks in use that are not resident, estimated from large sampled blocks.
#[derive(Clone, Debug, Default)]
pub struct Untouched {
    /// The sum.
    pub bytes: u64,
    /// Those of each bucket in the event table, by its name.
    pub by_bucket: HashMap<u32, u64>,
}

/// Reads them. Takes less than a microsecond for each sampled block above 32 KiB. Blocks that are `stacks` are left out.
pub(super) fn read(stacks: &[Range<usize>]) -> Untouched {
    let tables = PageTables::open();
    let mut untouched = Untouched::default();
    alloc::for_each_inside(|block, sample| {
        if block.len() <= LARGEST
            || !classify::in_both(std::slice::from_ref(&block), stacks).is_empty()
        {
            return;
        }
        let bytes = sample.weight.times(not_resident(&block, &tables));
        if bytes > 0 {
            untouched.bytes += bytes;
            *untouched.by_bucket.entry(sample.bucket.0).or_default() += bytes;
        }
    });
    untouched
}

/// Returns the bytes of the pages inside a block that are not resident. Its first and last page may belong to
/// neighbours.
fn not_resident(block: &Range<usize>, tables: &PageTables) -> usize {
    let page = page_size();
    let inner = block.start.next_multiple_of(page)..block.end / page * page;
    match inner.is_empty() {
        true => 0,
        false => inner.len() - tables.resident(&inner).min(inner.len()),
    }
}
