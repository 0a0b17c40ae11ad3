//! Assigns an owner to each part of resident memory: each mapping, or part of one, goes to the
//! first owner that matches.

mod variables;

use std::ops::Range;

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::residency::PageTables;
use plimsoll_process::smaps::Mapping;

use super::c_heap;
use plimsoll_backend::backend::Backend;
use plimsoll_core::alloc::mappings::Mapped;
use plimsoll_threads::thread::stacks::Stack;

/// An owner of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Plimsoll, except for sampled blocks.
    Plimsoll,
    /// The program's blocks that were sampled.
    SampledBlocks,
    Stacks,
    /// Stacks of ended threads, which the C library keeps.
    KeptStacks,
    /// Blocks of the program's allocator, if its backend reports their addresses.
    Blocks,
    /// Internal structures of that allocator.
    Structures,
    /// The C library's allocator.
    CHeap,
    /// Code and constants of files, and every other unmodified page of a mapped file.
    Files,
    /// Modified pages of privately mapped files, and variables that have no value in a file.
    Variables,
    /// Memory shared between processes, except anonymous memory that the program mapped directly.
    Shared,
    /// Memory that the program named by `prctl`.
    Named,
    /// Memory that the program mapped directly.
    Mapped,
    /// Memory that the program's allocator mapped by such calls.
    Allocator,
}

pub(super) const OWNERS: usize = Owner::Allocator as usize + 1;

/// The known owners of address ranges.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) plimsoll: Vec<Range<usize>>,
    pub(super) sampled: Range<usize>,
    /// Ranges in which the program's allocator keeps blocks.
    pub(super) blocks: Vec<Range<usize>>,
    /// Whether C code has blocks in the same ranges.
    pub(super) is_shared_with_c: bool,
    pub(super) structures: Vec<Range<usize>>,
    /// The backend, which recognizes its structures by their first words.
    pub(super) backend: Option<&'static dyn Backend>,
    /// Those of living threads: in order, without overlap.
    pub stacks: Vec<Range<usize>>,
    /// The same with their threads, unordered.
    pub(super) threads: Vec<Stack>,
    /// The stacks of ended threads.
    pub(super) past_stacks: Vec<Range<usize>>,
    /// Threads whose stacks are unknown, with their stack pointers.
    pub(super) stack_pointers: Vec<(i32, usize)>,
    /// Ranges that the program mapped directly and that belong to no other owner: in order, without
    /// overlap.
    pub(super) mapped: Vec<Mapped>,
}

/// A part of a mapping with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) owner: Owner,
    /// The part's addresses, or those of the whole mapping for the rest of one.
    pub(super) range: Range<usize>,
    /// Resident bytes, above 0.
    pub(super) resident: u64,
    /// The index of the mapping.
    pub(super) mapping: usize,
}

/// Bytes by owner.
pub(super) struct Sorted {
    tables: PageTables,
    /// All resident memory that has an owner.
    pub parts: Vec<Part>,
    /// Resident bytes.
    pub(super) resident: [u64; OWNERS],
    /// Bytes of readable address space.
    pub(super) mapped: [u64; OWNERS],
    /// The ranges of the C library's allocator.
    pub(super) c_heap: Vec<Range<usize>>,
    /// Bytes that are not resident, of its blocks with mappings of their own.
    pub(super) untouched_of_c: u64,
}

pub(super) fn sort(mappings: &[Mapping], known: &Known) -> Sorted {
    let mut sorted = Sorted {
        tables: PageTables::open(),
        parts: Vec::new(),
        resident: [0; OWNERS],
        mapped: [0; OWNERS],
        c_heap: Vec::new(),
        untouched_of_c: 0,
    };
    // The zero-initialized variables of the last file.
    let mut variables = 0..0;
    // The end of the last inaccessible mapping.
    let mut guard_end = 0;
    let mut unowned = Vec::new();
    for (number, mapping) in mappings.iter().enumerate() {
        if let Some(found) = variables::after(number, mappings) {
            variables = found;
        }
        let mut kept = Vec::new();
        if !mapping.accessible {
            guard_end = mapping.range.end;
        } else if mapping.range.start == guard_end && is_nameless(mapping) {
            kept = kept_stack(mapping, known);
        }
        unowned.extend(sorted.put(
            Rest::from_mapping(mapping, number),
            known,
            &kept,
            &variables,
        ));
    }
    sorted.put_c_heap(unowned, known);
    sorted
}

/// Returns the addresses of the stack of an ended thread with which a mapping begins, without the
/// stacks of living threads. The system merges the mapping of a stack with the one behind it.
fn kept_stack(mapping: &Mapping, known: &Known) -> Vec<Range<usize>> {
    let whole = &mapping.range;
    let is_here = |stack: &&Range<usize>| stack.start == whole.start && stack.end <= whole.end;
    let kept = known.past_stacks.iter().filter(is_here);
    let Some(longest) = kept.max_by_key(|stack| stack.end) else {
        return Vec::new();
    };
    let living = known.stacks.iter();
    living.fold(vec![longest.clone()], without)
}

/// The beginning of the kernel's name for shared anonymous memory.
const SHARED_ANONYMOUS: &str = "/dev/zero";

fn is_nameless(mapping: &Mapping) -> bool {
    !mapping.of_file && !mapping.shared && mapping.name.is_empty()
}

impl Sorted {
    /// Assigns the parts of a mapping. `kept` are the parts that the C library keeps as a stack. Returns
    /// nameless memory that has no owner yet.
    fn put<'m>(
        &mut self,
        mut rest: Rest<'m>,
        known: &Known,
        kept: &[Range<usize>],
        variables: &Range<usize>,
    ) -> Option<Unowned<'m>> {
        let ranges = std::iter::once((Owner::SampledBlocks, &known.sampled))
            .chain(all_of(Owner::Plimsoll, &known.plimsoll))
            .chain(all_of(Owner::Stacks, &known.stacks))
            .chain(all_of(Owner::KeptStacks, kept))
            .chain(all_of(Owner::Blocks, &known.blocks))
            .chain(all_of(Owner::Structures, &known.structures));
        let mapping = rest.mapping;
        if !mapping.accessible && !is_nameless(mapping) {
            return None;
        }
        // The parts that no owner has yet; `with_stacks` also includes stacks, since they may lie
        // in heap blocks.
        let mut others = vec![mapping.range.clone()];
        let mut with_stacks = others.clone();
        if mapping.accessible {
            for (owner, range) in ranges {
                if self.take(&mut rest, owner, range) {
                    others = without(others, range);
                    if owner != Owner::Stacks {
                        with_stacks = without(with_stacks, range);
                    }
                }
            }
            if rest.is_empty() {
                return None;
            }
        }
        if mapping.shared && mapping.name.starts_with(SHARED_ANONYMOUS) {
            self.take_mapped(&mut rest, known);
            if rest.is_empty() {
                return None;
            }
        }
        let whole = match &*mapping.name {
            "[stack]" => Some(Owner::Stacks),
            "[heap]" => Some(Owner::CHeap),
            "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" => Some(Owner::Files),
            _ if mapping.shared => Some(Owner::Shared),
            name if name.starts_with("[anon:") => Some(Owner::Named),
            _ => None,
        };
        if let Some(owner) = whole {
            if owner == Owner::CHeap {
                // The program may have obtained parts of the segment by `sbrk`.
                let not_mapped = self.take_mapped(&mut rest, known);
                self.c_heap.extend(not_mapped);
            }
            self.add(owner, &rest);
            return None;
        }
        if mapping.of_file {
            let variables = Rest {
                length: 0,
                resident: mapping.anonymous.min(rest.resident),
                ..rest
            };
            rest.resident -= variables.resident;
            self.add(Owner::Files, &rest);
            self.add(Owner::Variables, &variables);
            return None;
        }
        let not_mapped = self.take_mapped(&mut rest, known);
        others = in_both(&others, &not_mapped);
        with_stacks = in_both(&with_stacks, &not_mapped);
        for range in in_both(&others, std::slice::from_ref(variables)) {
            self.take(&mut rest, Owner::Variables, &range);
            others = without(others, &range);
            with_stacks = without(with_stacks, &range);
        }
        if let Some(backend) = known.backend.filter(|_| mapping.writable) {
            let found = others.iter().flat_map(|part| structures(part, backend));
            for range in found.collect::<Vec<_>>() {
                self.take(&mut rest, Owner::Structures, &range);
                others = without(others, &range);
                with_stacks = without(with_stacks, &range);
            }
        }
        Some(Unowned {
            rest,
            others,
            with_stacks,
        })
    }

    /// Assigns nameless memory to the C library's heap. Its blocks and arenas may extend over several
    /// mappings: calls such as `madvise` and `mprotect` for a part of one split it.
    fn put_c_heap(&mut self, unowned: Vec<Unowned<'_>>, known: &Known) {
        let with_stacks = unowned.iter().flat_map(|one| one.with_stacks.clone());
        let with_stacks = disjoint(with_stacks.collect());
        let others = disjoint(unowned.iter().flat_map(|one| one.others.clone()).collect());
        let tables = &self.tables;
        // The parts of `range` that are heap, from the end of the last part on.
        let heap = |range: &Range<usize>, whole: &[Range<usize>], end: usize| {
            let range = range.start.max(end)..range.end;
            let around = whole.iter().find(|whole| whole.contains(&range.start));
            match around.filter(|_| !range.is_empty()) {
                Some(whole) => c_heap::parts(&range, whole.end, tables),
                None => Vec::new(),
            }
        };
        let mut found: Vec<c_heap::Part> = Vec::new();
        let end = |parts: &[c_heap::Part]| parts.last().map_or(0, |last| last.range.end);
        let is_searched = |unowned: &&Unowned<'_>| unowned.rest.mapping.writable;
        for one in unowned.iter().filter(is_searched) {
            let mut parts = Vec::new();
            for range in &one.with_stacks {
                parts.extend(heap(range, &with_stacks, end(&parts).max(end(&found))));
            }
            if one.with_stacks != one.others {
                // Parts that lie behind a stack which lies in no block.
                let seen = parts.iter().map(|part| &part.range);
                let unseen = seen.fold(one.others.clone(), without);
                for range in &unseen {
                    parts.extend(heap(range, &others, end(&found)));
                }
                parts.sort_by_key(|part| part.range.start);
            }
            found.extend(parts);
        }
        let (blocks, of_arenas): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|part| part.is_block);
        let ranges = |parts: Vec<c_heap::Part>| -> Vec<Range<usize>> {
            parts.into_iter().map(|part| part.range).collect()
        };
        let (blocks, of_arenas) = (ranges(blocks), ranges(of_arenas));
        for mut one in unowned {
            for both in in_both(&of_arenas, &one.others) {
                self.take(&mut one.rest, Owner::CHeap, &both);
            }
            let before = self.resident(Owner::CHeap);
            let blocks = in_both(&blocks, &one.others);
            for both in &blocks {
                self.take(&mut one.rest, Owner::CHeap, both);
            }
            self.untouched_of_c +=
                length(&blocks).saturating_sub(self.resident(Owner::CHeap) - before);
            let range = &one.rest.mapping.range;
            let mut pointers = known.stack_pointers.iter();
            if pointers.any(|(_, pointer)| range.contains(pointer)) {
                self.add(Owner::Stacks, &one.rest);
            }
        }
        self.c_heap.extend(blocks.into_iter().chain(of_arenas));
        self.c_heap.sort_by_key(|part| part.start);
    }

    /// Takes the parts of a mapping that the program mapped directly, and returns the other parts:
    /// the system merges adjacent mappings of different owners.
    fn take_mapped(&mut self, rest: &mut Rest<'_>, known: &Known) -> Vec<Range<usize>> {
        let whole = &rest.mapping.range;
        let first = known
            .mapped
            .partition_point(|mapped| mapped.range.end <= whole.start);
        let mapped = known.mapped[first..].iter();
        let mut others = Vec::new();
        let mut end = whole.start;
        for mapped in mapped.take_while(|mapped| mapped.range.start < whole.end) {
            let owner = if mapped.of_allocator {
                Owner::Allocator
            } else {
                Owner::Mapped
            };
            self.take(rest, owner, &mapped.range);
            others.push(end..mapped.range.start.max(end));
            end = mapped.range.end;
        }
        others.push(end.min(whole.end)..whole.end);
        others.retain(|other| !other.is_empty());
        others
    }

    /// Takes the part of a mapping that lies in `range`. Returns false if the two do not overlap.
    fn take(&mut self, rest: &mut Rest<'_>, owner: Owner, range: &Range<usize>) -> bool {
        let whole = &rest.mapping.range;
        let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
        if start >= end || rest.is_empty() {
            return false;
        }
        let length = (end - start) as u64;
        // Most ranges are whole mappings, whose resident size the system already reported.
        let resident = if (start..end) == *whole || rest.resident == 0 {
            rest.resident
        } else {
            (self.tables.resident(&(start..end)) as u64).min(rest.resident)
        };
        rest.length = rest.length.saturating_sub(length);
        rest.resident -= resident;
        self.put_part(owner, start..end, (length, resident), rest.number);
        true
    }

    /// Adds what a mapping has left.
    fn add(&mut self, owner: Owner, rest: &Rest<'_>) {
        let range = rest.mapping.range.clone();
        self.put_part(owner, range, (rest.length, rest.resident), rest.number);
    }

    fn put_part(
        &mut self,
        owner: Owner,
        range: Range<usize>,
        (mapped, resident): (u64, u64),
        mapping: usize,
    ) {
        self.mapped[owner as usize] += mapped;
        self.resident[owner as usize] += resident;
        if resident > 0 {
            self.parts.push(Part {
                owner,
                range,
                resident,
                mapping,
            });
        }
    }

    pub(super) fn resident(&self, owner: Owner) -> u64 {
        self.resident[owner as usize]
    }

    pub(super) fn mapped(&self, owner: Owner) -> u64 {
        self.mapped[owner as usize]
    }
}

/// Nameless memory of a mapping that has no owner yet.
struct Unowned<'m> {
    rest: Rest<'m>,
    /// Its addresses.
    others: Vec<Range<usize>>,
    /// The same with stacks.
    with_stacks: Vec<Range<usize>>,
}

/// The part of a mapping that has no owner yet.
struct Rest<'m> {
    mapping: &'m Mapping,
    /// The index of the mapping.
    number: usize,
    length: u64,
    resident: u64,
}

impl<'m> Rest<'m> {
    fn from_mapping(mapping: &'m Mapping, number: usize) -> Self {
        Self {
            mapping,
            number,
            length: mapping.range.len() as u64,
            resident: mapping.resident,
        }
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }
}

fn all_of(owner: Owner, ranges: &[Range<usize>]) -> impl Iterator<Item = (Owner, &Range<usize>)> {
    ranges.iter().map(move |range| (owner, range))
}

/// The alignment, in bytes, at which an allocator's structures are searched for.
const STRUCTURES_STEP: usize = 2 << 20;

/// The maximum number of addresses at which one range is searched.
const MAX_LOOKS: usize = 1 << 16;

/// Returns the parts of `range` that are an allocator's structures.
fn structures(range: &Range<usize>, backend: &'static dyn Backend) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut page = [0; PAGE_WORDS];
    let mut at = range.start.next_multiple_of(STRUCTURES_STEP);
    for _ in 0..MAX_LOOKS {
        if at >= range.end {
            break;
        }
        let copied = copied_memory::copy(at, &mut page);
        let words = [page[0], page[1], page[2], page[3]];
        let length = (copied > 0).then(|| backend.structures_at(at, words));
        let length = length.flatten().filter(|&length| length <= range.end - at);
        if let Some(length) = length {
            found.push(at..at + length);
        }
        at = (at + length.unwrap_or(1)).next_multiple_of(STRUCTURES_STEP);
    }
    found
}

/// Merges ranges so that none overlap; the result covers the same addresses.
pub(super) fn disjoint(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut disjoint: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match disjoint.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => disjoint.push(range),
        }
    }
    disjoint
}

/// Cuts ranges so that none overlap, without merging any.
pub(super) fn separate(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut end = 0;
    ranges.retain_mut(|range| {
        range.start = range.start.max(end);
        end = end.max(range.end);
        range.start < range.end
    });
    ranges
}

/// Returns the program's mappings without `others`, which are in order and disjoint. Adjacent parts
/// with the same owner and caller are merged.
pub(super) fn mapped_without(mapped: Vec<Mapped>, others: &[Range<usize>]) -> Vec<Mapped> {
    let mut parts: Vec<Mapped> = Vec::with_capacity(mapped.len());
    for whole in mapped {
        let first = others.partition_point(|other| other.end <= whole.range.start);
        let inside = others[first..].iter();
        let inside = inside.take_while(|other| other.start < whole.range.end);
        let mut start = whole.range.start;
        let ends = inside.map(|other| (other.start, other.end));
        for (end, next) in ends.chain([(whole.range.end, whole.range.end)]) {
            let range = start..end;
            start = next;
            match parts.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.range.end == range.start && last.is_like(&whole) => {
                    last.range.end = range.end;
                }
                _ => parts.push(Mapped {
                    range,
                    ..whole.clone()
                }),
            }
        }
    }
    parts
}

/// Returns `ranges` without the addresses in `other`.
pub(super) fn without(ranges: Vec<Range<usize>>, other: &Range<usize>) -> Vec<Range<usize>> {
    let parts = ranges.into_iter().flat_map(|range| {
        let before = range.start..range.end.min(other.start);
        let after = range.start.max(other.end)..range.end;
        [before, after]
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// Returns the intersection of two lists of ranges; each list is in order and without overlap.
pub(super) fn in_both(some: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut at, mut both) = (0, Vec::new());
    for one in some {
        // Ranges that end before this one cannot overlap the next one either.
        at += others[at..].partition_point(|other| other.end <= one.start);
        let near = others[at..].iter();
        let near = near.take_while(|other| other.start < one.end);
        both.extend(near.map(|other| one.start.max(other.start)..one.end.min(other.end)));
    }
    both.retain(|range| !range.is_empty());
    both
}

/// Returns the total length of the ranges, in bytes.
pub(super) fn length(ranges: &[Range<usize>]) -> u64 {
    ranges.iter().map(|range| range.len() as u64).sum()
}

#[cfg(test)]
mod tests;
