//! Who has how much of the memory that is resident: each mapping, or part of one, goes to the first
//! that it can be told to be of.

use std::ops::Range;

use super::c_heap;
use crate::mappings::Mapped;
use crate::os::copied_memory::{self, PAGE_WORDS};
use crate::os::residency::PageTables;
use crate::os::smaps::Mapping;
use crate::stats::Backend;

/// Who has memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Plimsoll, in memory that it never gives back.
    Plimsoll,
    /// The program's blocks that were sampled.
    SampledBlocks,
    Stacks,
    /// The C library, which keeps the stacks of threads that have ended.
    KeptStacks,
    /// The program's allocator, if it knows where its blocks are.
    Blocks,
    /// The same, for structures of its own.
    Structures,
    /// The C library's allocator.
    CHeap,
    /// Code and constants of files, and what else of mapped files is as it is in the file.
    Files,
    /// What was written of files that are mapped for this process alone, and variables without
    /// values in a file.
    Variables,
    /// What is shared between processes.
    Shared,
    /// What the program has given a name by `prctl`.
    Named,
    /// The program, which mapped it by itself.
    Mapped,
    /// The program's allocator, which did.
    Allocator,
}

pub(super) const OWNERS: usize = Owner::Allocator as usize + 1;

/// What is known of addresses.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) plimsoll: Vec<Range<usize>>,
    pub(super) sampled: Range<usize>,
    /// What the program's allocator has mapped.
    pub(super) blocks: Vec<Range<usize>>,
    pub(super) structures: Vec<Range<usize>>,
    /// Who knows its structures by their first words.
    pub(super) backend: Option<&'static dyn Backend>,
    pub(super) stacks: Vec<Range<usize>>,
    /// Where stacks were of threads that have ended.
    pub(super) past_stacks: Vec<Range<usize>>,
    /// Stack pointers of threads whose stacks are not known.
    pub(super) stack_pointers: Vec<usize>,
    /// What the program has mapped by itself, of all that is no other's: in order, and no two
    /// overlap.
    pub(super) mapped: Vec<Mapped>,
}

/// Bytes by owner.
pub(super) struct Sorted {
    tables: PageTables,
    /// In memory.
    pub(super) resident: [u64; OWNERS],
    /// Of addresses that can be read.
    pub(super) mapped: [u64; OWNERS],
    /// Where the C library's allocator has its blocks.
    pub(super) c_heap: Vec<Range<usize>>,
}

pub(super) fn sort(mappings: &[Mapping], known: &Known) -> Sorted {
    let mut sorted = Sorted {
        tables: PageTables::open(),
        resident: [0; OWNERS],
        mapped: [0; OWNERS],
        c_heap: Vec::new(),
    };
    // Where the last mapping of a file ended, with what is its continuation.
    let mut file_end = 0;
    // Where the last mapping ended that cannot be read.
    let mut guard_end = 0;
    for mapping in mappings {
        let continues_file = mapping.range.start == file_end;
        if (mapping.of_file && !mapping.shared) || (continues_file && is_nameless(mapping)) {
            file_end = mapping.range.end;
        }
        if !mapping.accessible {
            guard_end = mapping.range.end;
            // It may have been touched before.
            if mapping.resident > 0 && is_nameless(mapping) {
                sorted.take_mapped(&mut Rest::of(mapping), known);
            }
            continue;
        }
        let is_guarded = mapping.range.start == guard_end && is_nameless(mapping);
        if is_guarded && known.past_stacks.contains(&mapping.range) {
            let mut rest = Rest::of(mapping);
            for stack in &known.stacks {
                sorted.take(&mut rest, Owner::Stacks, stack);
            }
            sorted.add(Owner::KeptStacks, rest.length, rest.resident);
        } else {
            sorted.put(mapping, known, continues_file);
        }
    }
    sorted
}

fn is_nameless(mapping: &Mapping) -> bool {
    !mapping.of_file && !mapping.shared && mapping.name.is_empty()
}

impl Sorted {
    fn put(&mut self, mapping: &Mapping, known: &Known, continues_file: bool) {
        let ranges = std::iter::once((Owner::SampledBlocks, &known.sampled))
            .chain(all_of(Owner::Plimsoll, &known.plimsoll))
            .chain(all_of(Owner::Stacks, &known.stacks))
            .chain(all_of(Owner::Blocks, &known.blocks))
            .chain(all_of(Owner::Structures, &known.structures));
        let mut rest = Rest::of(mapping);
        // What is left of it; and with the stacks that are in blocks of the heap.
        let mut others = vec![mapping.range.clone()];
        let mut with_stacks = others.clone();
        for (owner, range) in ranges {
            if self.take(&mut rest, owner, range) {
                others = without(others, range);
                if owner != Owner::Stacks {
                    with_stacks = without(with_stacks, range);
                }
            }
        }
        if rest.is_empty() {
            return;
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
                self.c_heap.push(mapping.range.clone());
            }
            return self.add(owner, rest.length, rest.resident);
        }
        if mapping.of_file {
            let written = mapping.anonymous.min(rest.resident);
            self.add(Owner::Files, rest.length, rest.resident - written);
            return self.add(Owner::Variables, 0, written);
        }
        let not_mapped = self.take_mapped(&mut rest, known);
        if rest.is_empty() {
            return;
        }
        others = in_both(&others, &not_mapped);
        with_stacks = in_both(&with_stacks, &not_mapped);
        if continues_file {
            return self.add(Owner::Variables, rest.length, rest.resident);
        }
        if !mapping.writable {
            return;
        }
        if let Some(backend) = known.backend {
            let found = others.iter().flat_map(|part| structures(part, backend));
            for range in found.collect::<Vec<_>>() {
                self.take(&mut rest, Owner::Structures, &range);
                others = without(others, &range);
                with_stacks = without(with_stacks, &range);
            }
        }
        let parts: Vec<_> = with_stacks.iter().flat_map(c_heap::parts).collect();
        for both in in_both(&parts, &others) {
            self.take(&mut rest, Owner::CHeap, &both);
        }
        self.c_heap.extend(parts);
        let pointers = &known.stack_pointers;
        if pointers
            .iter()
            .any(|pointer| mapping.range.contains(pointer))
        {
            self.add(Owner::Stacks, rest.length, rest.resident);
        }
    }

    /// Takes the parts of a mapping that the program has mapped by itself, and returns the others:
    /// the system makes one of what lies side by side, whoever has it.
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

    /// Takes the part of a mapping that lies in a range. False if there is none.
    fn take(&mut self, rest: &mut Rest<'_>, owner: Owner, range: &Range<usize>) -> bool {
        let whole = &rest.mapping.range;
        let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
        if start >= end || rest.is_empty() {
            return false;
        }
        let length = (end - start) as u64;
        // Most are mappings of their own, of which the system has said it.
        let resident = if (start..end) == *whole || rest.resident == 0 {
            rest.resident
        } else {
            (self.tables.resident(&(start..end)) as u64).min(rest.resident)
        };
        rest.length = rest.length.saturating_sub(length);
        rest.resident -= resident;
        self.add(owner, length, resident);
        true
    }

    fn add(&mut self, owner: Owner, mapped: u64, resident: u64) {
        self.mapped[owner as usize] += mapped;
        self.resident[owner as usize] += resident;
    }

    pub(super) fn resident(&self, owner: Owner) -> u64 {
        self.resident[owner as usize]
    }

    pub(super) fn mapped(&self, owner: Owner) -> u64 {
        self.mapped[owner as usize]
    }
}

/// What is left of a mapping.
struct Rest<'m> {
    mapping: &'m Mapping,
    length: u64,
    resident: u64,
}

impl<'m> Rest<'m> {
    fn of(mapping: &'m Mapping) -> Self {
        Self {
            mapping,
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

/// What structures are looked for at multiples of, in bytes.
const STRUCTURES_STEP: usize = 2 << 20;

/// So often structures are looked for in a row of addresses.
const MOST_LOOKS: usize = 1 << 16;

/// Where in a range of addresses an allocator's structures are.
fn structures(range: &Range<usize>, backend: &'static dyn Backend) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut page = [0; PAGE_WORDS];
    let mut at = range.start.next_multiple_of(STRUCTURES_STEP);
    for _ in 0..MOST_LOOKS {
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

/// The same addresses in ranges that do not overlap.
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

/// What the program has mapped, less what of that others have, whose ranges are in order and
/// disjoint; neighbours are made one.
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
                Some(last)
                    if last.range.end == range.start && last.of_allocator == whole.of_allocator =>
                {
                    last.range.end = range.end;
                }
                _ => parts.push(Mapped {
                    range,
                    of_allocator: whole.of_allocator,
                }),
            }
        }
    }
    parts
}

/// Without what lies in another range.
pub(super) fn without(ranges: Vec<Range<usize>>, other: &Range<usize>) -> Vec<Range<usize>> {
    let parts = ranges.into_iter().flat_map(|range| {
        let before = range.start..range.end.min(other.start);
        let after = range.start.max(other.end)..range.end;
        [before, after]
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// What is in ranges of both kinds; those of a kind are in order, and do not overlap.
pub(super) fn in_both(some: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let (mut at, mut both) = (0, Vec::new());
    for one in some {
        // Those that end before this one are of no use for the next, either.
        at += others[at..].partition_point(|other| other.end <= one.start);
        let near = others[at..].iter();
        let near = near.take_while(|other| other.start < one.end);
        both.extend(near.map(|other| one.start.max(other.start)..one.end.min(other.end)));
    }
    both.retain(|range| !range.is_empty());
    both
}

/// How many bytes are in ranges.
pub(super) fn length(ranges: &[Range<usize>]) -> u64 {
    ranges.iter().map(|range| range.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::region::PAGE;

    /// Below anything that is mapped, so that nothing is found there.
    const AT: usize = 0x1000;

    fn mapping(pages: Range<usize>, name: &str, resident: u64, anonymous: u64) -> Mapping {
        Mapping {
            range: AT + pages.start * 4096..AT + pages.end * 4096,
            accessible: true,
            writable: true,
            shared: false,
            of_file: name.starts_with('/'),
            name: name.to_owned(),
            resident,
            anonymous,
        }
    }

    #[test]
    fn each_mapping_goes_to_who_has_it_and_the_rest_to_nobody() {
        let shared = Mapping {
            shared: true,
            ..mapping(20..21, "/dev/shm/x", 3, 0)
        };
        let mappings = [
            mapping(0..1, "/bin/program", 40, 10),
            mapping(1..2, "", 5, 5),
            mapping(2..3, "[heap]", 7, 7),
            mapping(5..6, "", 100, 100),
            mapping(7..8, "", 11, 11),
            mapping(9..10, "", 13, 13),
            mapping(11..12, "[anon:arena]", 17, 17),
            mapping(13..14, "[stack]", 19, 19),
            mapping(15..16, "", 23, 23),
            shared,
            // With a guard before it, and without.
            mapping(31..33, "", 29, 29),
            mapping(35..37, "", 31, 31),
            // The program's, twice, and its allocator's, which cannot be read.
            mapping(40..42, "", 37, 37),
            mapping(45..47, "", 41, 41),
            Mapping {
                accessible: false,
                ..mapping(50..51, "", 43, 43)
            },
            // The allocator's, as it says.
            mapping(60..62, "", 37, 37),
            mapping(65..66, "", 41, 41),
        ];
        let range = |index: usize| mappings[index].range.clone();
        let guard = Mapping {
            accessible: false,
            ..mapping(30..31, "", 0, 0)
        };
        let known = Known {
            plimsoll: vec![range(4)],
            sampled: range(8),
            stacks: vec![],
            past_stacks: vec![range(10), range(11)],
            stack_pointers: vec![range(5).start + 100],
            mapped: vec![
                of_program(range(12).start..range(13).end, false),
                of_program(range(14), true),
            ],
            blocks: vec![range(15)],
            structures: vec![range(16)],
            backend: None,
        };
        let mut with_guard = mappings.to_vec();
        with_guard.insert(10, guard);
        let sorted = sort(&with_guard, &known);
        let expected = [
            (Owner::Files, 30),
            (Owner::Variables, 15),
            (Owner::CHeap, 7),
            (Owner::Plimsoll, 11),
            (Owner::Stacks, 13 + 19),
            (Owner::KeptStacks, 29),
            (Owner::Named, 17),
            (Owner::SampledBlocks, 23),
            (Owner::Shared, 3),
            (Owner::Mapped, 37 + 41),
            (Owner::Allocator, 43),
            (Owner::Blocks, 37),
            (Owner::Structures, 41),
        ];
        for (owner, resident) in expected {
            assert_eq!(sorted.resident(owner), resident, "{owner:?}");
        }
        let all: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        assert_eq!(all - sorted.resident.iter().sum::<u64>(), 131, "nobody's");
        assert!(sorted.c_heap.len() == 1 && sorted.c_heap[0] == range(2));
    }

    /// One whose structures begin with their length and a mark.
    struct Marked;

    impl Backend for Marked {
        fn name(&self) -> &'static str {
            "marked"
        }

        fn pages(&self) -> crate::stats::Pages {
            crate::stats::Pages::ABSENT
        }

        fn purge(&self) {}

        fn structures_at(&self, _: usize, words: [usize; 4]) -> Option<usize> {
            (words[1] == 0x5eed).then_some(words[0])
        }
    }

    #[test]
    fn structures_are_found_in_memory_that_is_nobodys() {
        let (step, access) = (STRUCTURES_STEP, libc::PROT_READ | libc::PROT_WRITE);
        let memory = crate::os::region::map(6 * step, 0, access).unwrap();
        let first = memory.next_multiple_of(step);
        let range = memory..first + 5 * step - PAGE;
        let begin = |number: usize, length: usize| {
            let words = (first + number * step) as *mut usize;
            // SAFETY: within what was mapped.
            unsafe {
                words.write(length);
                words.add(1).write(0x5eed);
            }
        };
        begin(0, 100);
        // The next one lies within this.
        begin(1, step + 1);
        begin(2, step);
        begin(3, PAGE);
        // Longer than there is room for.
        begin(4, step);
        let expected = [
            first..first + 100,
            first + step..first + 2 * step + 1,
            first + 3 * step..first + 3 * step + PAGE,
        ];
        assert_eq!(structures(&range, &Marked), expected);
        // SAFETY: mapped above, and nobody else's.
        unsafe { libc::munmap(memory as *mut _, 6 * step) };
        assert!(structures(&range, &Marked).is_empty());
    }

    fn of_program(range: Range<usize>, of_allocator: bool) -> Mapped {
        Mapped {
            range,
            of_allocator,
        }
    }

    #[test]
    fn what_is_mapped_is_less_what_others_have_and_made_one_with_its_neighbours() {
        let mapped = [
            (10..20, false),
            (20..30, false),
            (30..40, true),
            (50..60, true),
        ];
        let mapped = mapped.map(|(range, of_allocator)| of_program(range, of_allocator));
        let others = [5..11, 15..16, 28..31, 52..53, 59..70];
        let found = mapped_without(mapped.to_vec(), &others);
        let expected = [
            (11..15, false),
            (16..28, false),
            (31..40, true),
            (50..52, true),
            (53..59, true),
        ];
        let expected = expected.map(|(range, of_allocator)| of_program(range, of_allocator));
        assert_eq!(found, expected);
        assert_eq!(mapped_without(mapped.to_vec(), &[]).len(), 3);
        assert!(mapped_without(mapped.to_vec(), std::slice::from_ref(&(0..100))).is_empty());
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let joined = disjoint(vec![5..9, 1..3, 2..4, 6..7]);
        assert_eq!(joined, [1..4, 5..9]);
        assert_eq!(without(joined.clone(), &(3..6)), [1..3, 6..9]);
        assert!(without(joined.clone(), &(0..9)).is_empty());
        assert_eq!(without(joined.clone(), &(9..9)), joined);
        assert_eq!(in_both(&joined, &[0..2, 3..6]), [1..2, 3..4, 5..6]);
        assert_eq!(in_both(&[0..2, 3..6], &joined), [1..2, 3..4, 5..6]);
        assert_eq!(in_both(std::slice::from_ref(&(0..100)), &joined), joined);
        assert!(in_both(&joined, &[]).is_empty());
        assert_eq!(length(&joined), 7);
    }
}
