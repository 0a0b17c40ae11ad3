//! Who has how much of the memory that is resident: each mapping, or part of one, goes to the first
//! that it can be told to be of.

use std::ops::Range;

use super::c_heap;
use crate::os::residency;
use crate::os::smaps::Mapping;

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
}

pub(super) const OWNERS: usize = Owner::Named as usize + 1;

/// What is known of addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) plimsoll: Vec<Range<usize>>,
    pub(super) sampled: Range<usize>,
    pub(super) stacks: Vec<Range<usize>>,
    /// Where stacks were of threads that have ended.
    pub(super) past_stacks: Vec<Range<usize>>,
    /// Stack pointers of threads whose stacks are not known.
    pub(super) stack_pointers: Vec<usize>,
}

/// Bytes by owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// In memory.
    pub(super) resident: [u64; OWNERS],
    /// Of addresses that can be read.
    pub(super) mapped: [u64; OWNERS],
    /// Where the C library's allocator has its blocks.
    pub(super) c_heap: Vec<Range<usize>>,
}

pub(super) fn sort(mappings: &[Mapping], known: &Known) -> Sorted {
    let mut sorted = Sorted::default();
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
        let own = known.plimsoll.iter();
        let ranges = std::iter::once((Owner::SampledBlocks, &known.sampled))
            .chain(own.map(|range| (Owner::Plimsoll, range)))
            .chain(known.stacks.iter().map(|range| (Owner::Stacks, range)));
        let mut rest = Rest::of(mapping);
        for (owner, range) in ranges {
            self.take(&mut rest, owner, range);
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
        if continues_file {
            return self.add(Owner::Variables, rest.length, rest.resident);
        }
        if !mapping.writable {
            return;
        }
        for part in c_heap::parts(mapping) {
            self.take(&mut rest, Owner::CHeap, &part);
            self.c_heap.push(part);
        }
        let pointers = &known.stack_pointers;
        if pointers
            .iter()
            .any(|pointer| mapping.range.contains(pointer))
        {
            self.add(Owner::Stacks, rest.length, rest.resident);
        }
    }

    /// Takes the part of a mapping that lies in a range.
    fn take(&mut self, rest: &mut Rest<'_>, owner: Owner, range: &Range<usize>) {
        let (start, end) = (
            range.start.max(rest.mapping.range.start),
            range.end.min(rest.mapping.range.end),
        );
        if start >= end || rest.is_empty() {
            return;
        }
        let length = (end - start) as u64;
        // Most are mappings of their own, of which the system has said it.
        let resident = if (start..end) == rest.mapping.range {
            rest.resident
        } else {
            (residency::resident(&(start..end)) as u64).min(rest.resident)
        };
        rest.length = rest.length.saturating_sub(length);
        rest.resident -= resident;
        self.add(owner, length, resident);
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

/// Without what lies in another range.
pub(super) fn without(ranges: Vec<Range<usize>>, other: &Range<usize>) -> Vec<Range<usize>> {
    let parts = ranges.into_iter().flat_map(|range| {
        let before = range.start..range.end.min(other.start);
        let after = range.start.max(other.end)..range.end;
        [before, after]
    });
    parts.filter(|part| part.start < part.end).collect()
}

/// How many bytes are in ranges of both kinds; those of a kind do not overlap.
pub(super) fn in_both(some: &[Range<usize>], others: &[Range<usize>]) -> u64 {
    let pairs = some
        .iter()
        .flat_map(|one| others.iter().map(move |other| (one, other)));
    pairs.fold(0, |sum, (one, other)| {
        let (start, end) = (one.start.max(other.start), one.end.min(other.end));
        sum + end.saturating_sub(start) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        for (owner, resident) in expected {
            assert_eq!(sorted.resident(owner), resident, "{owner:?}");
        }
        let all: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        assert_eq!(all - sorted.resident.iter().sum::<u64>(), 131, "nobody's");
        assert!(sorted.c_heap.len() == 1 && sorted.c_heap[0] == range(2));
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let joined = disjoint(vec![5..9, 1..3, 2..4, 6..7]);
        assert_eq!(joined, [1..4, 5..9]);
        assert_eq!(without(joined.clone(), &(3..6)), [1..3, 6..9]);
        assert!(without(joined.clone(), &(0..9)).is_empty());
        assert_eq!(without(joined.clone(), &(9..9)), joined);
        assert_eq!(in_both(&joined, &[0..2, 3..6]), 1 + 1 + 1);
        assert_eq!(in_both(&joined, &[]), 0);
    }
}
