//! Finds the mappings of the C library's heap by their contents: the headers of arenas other than
//! the first, and of blocks that have separate mappings. The first arena's mapping has a name.

use std::ops::Range;

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::residency::PageTables;
use plimsoll_sys::os::region::PAGE;

use crate::stats::HeapStats;
use crate::stats::space::Sampled;
use plimsoll_ledger::size_class::LARGEST;

/// The alignment and maximum length of each part of an arena.
const ARENA_PART: usize = 64 << 20;

/// The flag of a separately mapped block, in the lowest three bits of its size.
const MAPPED_BLOCK: usize = 2;

/// The maximum number of pages in one range that are looked at without belonging to a block. Beyond them,
/// only places where an arena may begin are.
const MAX_PAGES: usize = 512;

/// The maximum number of these places: 1 TiB has as many. Programs reserve more, such as a sanitizer's
/// shadow of all memory.
const MAX_PLACES: usize = 16 << 10;

/// Returns the bytes of the chunks of all blocks in `heap`, except for sampled ones, which lie in
/// Plimsoll's memory.
pub(super) fn chunks(heap: &HeapStats, sampled: &[Sampled]) -> u64 {
    let of_blocks = |blocks: u64, size: u64| blocks * (size + slack(size));
    let classes = heap.by_class.iter().map(|class| {
        let blocks = class.mallocs.saturating_sub(class.frees);
        of_blocks(blocks, class.size as u64)
    });
    let large = heap.large;
    let all = classes.sum::<u64>() + large.malloc_bytes.saturating_sub(large.free_bytes);
    let small = sampled.iter().map(|sampled| {
        let size = sampled.record.size;
        of_blocks(sampled.samples * u64::from(size <= LARGEST as u64), size)
    });
    all.saturating_sub(small.sum())
}

/// Returns the bytes by which a block of the GNU C library exceeds `size`, a counted size: its
/// header, and the rounding to 16 bytes. 0 for sizes above 1 KiB, whose counted size exceeds the
/// block's in most cases.
pub fn slack(size: u64) -> u64 {
    const HEADER: u64 = size_of::<usize>() as u64;
    const ALIGNMENT: u64 = 2 * HEADER;
    const SMALLEST: u64 = 4 * HEADER;
    if !cfg!(target_env = "gnu") || size == 0 || size > 1024 {
        return 0;
    }
    (size + HEADER).next_multiple_of(ALIGNMENT).max(SMALLEST) - size
}

/// A part of memory that the C library's allocator has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: Range<usize>,
    /// Whether it is a block that the C library mapped separately; otherwise a part of an arena.
    pub(super) is_block: bool,
}

/// Returns the parts of nameless memory that are heap, in order. Memory whose first four words form
/// a consistent heap header is taken for heap. Headers are searched for in `range`. A part ends before `limit`,
/// the end of the nameless memory behind `range`: the kernel splits a mapping where a call changes a part of it.
///
/// Only resident pages are read: reading others would add to the page tables of the program, a page for
/// each 2 MiB.
pub fn parts(range: &Range<usize>, limit: usize, tables: &PageTables) -> Vec<Part> {
    let mut page = [0; PAGE_WORDS];
    parts_by(range, limit, |at| {
        if tables.resident(&(at..at + PAGE)) == 0 {
            return Some([0; 4]);
        }
        let copied = copied_memory::copy(at, &mut page);
        (copied > 0).then(|| [page[0], page[1], page[2], page[3]])
    })
}

fn parts_by(
    range: &Range<usize>,
    limit: usize,
    mut words: impl FnMut(usize) -> Option<[usize; 4]>,
) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut at, mut strange) = (range.start, 0);
    while at < range.end {
        if strange >= MAX_PAGES + MAX_PLACES {
            break;
        }
        if strange >= MAX_PAGES && at % ARENA_PART != 0 {
            // Stacks and other memory may precede an arena in the same mapping.
            at = at.next_multiple_of(ARENA_PART);
            continue;
        }
        let left = limit - at;
        let Some(head) = words(at) else { break };
        // An arena may have grown since the mappings were listed.
        let of_arena = arena_part(at, head).map(|length| length.min(left));
        let length = of_arena.or_else(|| mapped_block(head));
        match length.filter(|&length| length <= left) {
            Some(length) => {
                parts.push(Part {
                    range: at..at + length,
                    is_block: of_arena.is_none(),
                });
                at += length;
            }
            None => {
                strange += 1;
                at += PAGE;
            }
        }
    }
    parts
}

/// Returns the length of the arena part at `at`. Its header has the address of the arena, the
/// address of the previous part, and how many bytes are in use and accessible.
fn arena_part(at: usize, [arena, before, used, accessible]: [usize; 4]) -> Option<usize> {
    // The arena structure lies in its first part, behind such a header.
    let near = arena % ARENA_PART < 256 && arena >= ARENA_PART;
    let first = (before == 0) == (arena / ARENA_PART == at / ARENA_PART);
    let fits = used > 0 && used <= accessible && accessible <= ARENA_PART;
    let is_part = at % ARENA_PART == 0 && near && first && before % ARENA_PART == 0 && fits;
    (is_part && accessible % PAGE == 0).then_some(accessible)
}

/// Returns the length of the separately mapped block with this header.
fn mapped_block([before, size, ..]: [usize; 4]) -> Option<usize> {
    let length = size & !7;
    let is_block = before == 0 && size & 7 == MAPPED_BLOCK && length > 0 && length % PAGE == 0;
    is_block.then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(range: Range<usize>) -> Part {
        Part {
            range,
            is_block: true,
        }
    }

    fn of_arena(range: Range<usize>) -> Part {
        Part {
            range,
            is_block: false,
        }
    }

    #[test]
    fn blocks_are_found_behind_blocks_and_behind_other_data() {
        let start = 0x7f12_3450_0000;
        let end = start + 10 * PAGE;
        let found = parts_by(&(start..end), end, |at| {
            Some(match (at - start) / PAGE {
                1 => [0, (3 * PAGE) | 2, 7, 7],
                4 => [0, (2 * PAGE) | 2, 0, 0],
                6 => [1, PAGE | 2, 0, 0],
                7 => [0, PAGE | 1, 0, 0],
                // Longer than the mapping.
                9 => [0, (2 * PAGE) | 2, 0, 0],
                _ => [0; 4],
            })
        });
        assert_eq!(
            found,
            [
                block(start + PAGE..start + 4 * PAGE),
                block(start + 4 * PAGE..start + 6 * PAGE)
            ]
        );
    }

    #[test]
    fn an_arena_that_has_grown_since_the_list_is_found() {
        let start = 0x7f12_3400_0000;
        let grown = [start + 48, 0, 0x23000, 0x23000];
        let found = parts_by(&(start..start + 0x21000), start + 0x21000, |_| Some(grown));
        assert_eq!(found.first(), Some(&of_arena(start..start + 0x21000)));
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn an_arena_behind_much_other_memory_is_found() {
        let start = 0x7f12_3400_0000;
        let range = start - 600 * PAGE..start + 0x21000;
        let found = parts_by(&range, range.end, |at| {
            Some(match at == start {
                true => [start + 48, 0, 0x20000, 0x21000],
                false => [0; 4],
            })
        });
        assert_eq!(found, [of_arena(start..start + 0x21000)]);
    }

    #[test]
    fn memory_that_is_not_resident_is_not_read_and_a_large_range_ends() {
        let range = 1 << 45..1 << 46;
        let mut looks = 0;
        let found = parts_by(&range, range.end, |_| {
            looks += 1;
            Some([0; 4])
        });
        assert_eq!((found.len(), looks), (0, MAX_PAGES + MAX_PLACES));
        // Readable memory that nothing has touched, whose page tables stay as they are.
        const LENGTH: usize = 1 << 36;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the address.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let range = base as usize..base as usize + LENGTH;
        let tables = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("VmPTE:"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let before = tables();
        assert!(parts(&range, range.end, &PageTables::open()).is_empty());
        // One page of them for each place would be 4 MiB; other tests use memory meanwhile.
        assert!(tables() < before + 2048, "{before} {}", tables());
        // SAFETY: nothing refers to the mapping.
        unsafe { libc::munmap(base, LENGTH) };
    }

    #[test]
    fn arenas_are_found_where_they_must_lie() {
        let start = 0x7f12_3400_0000;
        let head = [start + 48, 0, 0x20000, 0x21000];
        assert_eq!(arena_part(start, head), Some(0x21000));
        assert_eq!(arena_part(start + PAGE, head), None);
        let second = [start + 48, start, 0x1000, 0x1000];
        assert_eq!(arena_part(start + ARENA_PART, second), Some(0x1000));
        assert_eq!(arena_part(start, second), None);
        assert_eq!(arena_part(start, [start + 48, 0, 0x22000, 0x21000]), None);
        assert_eq!(arena_part(start, [0; 4]), None);
    }

    #[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
    #[test]
    fn the_slack_of_a_block_is_its_header_and_rounding() {
        for (size, expected) in [(8, 24), (24, 8), (32, 16), (40, 8), (1024, 16), (1152, 0)] {
            assert_eq!(super::slack(size), expected, "{size}");
        }
    }
}
