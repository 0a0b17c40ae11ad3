use plimsoll_sys::os::region::PAGE;

use super::*;

/// Below anything that is mapped, so that nothing is found at these addresses.
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
fn each_mapping_goes_to_its_owner_and_the_rest_is_unowned() {
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
        // One preceded by a guard, and one without.
        mapping(31..33, "", 29, 29),
        mapping(35..37, "", 31, 31),
        // Two of the program's, and an inaccessible one of its allocator.
        mapping(40..42, "", 37, 37),
        mapping(45..47, "", 41, 41),
        Mapping {
            accessible: false,
            ..mapping(50..51, "", 43, 43)
        },
        // Reported by the allocator.
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
        threads: vec![],
        stack_pointers: vec![(7, range(5).start + 100)],
        mapped: vec![
            of_program(range(12).start..range(13).end, false),
            of_program(range(14), true),
        ],
        blocks: vec![range(15)],
        is_shared_with_c: false,
        structures: vec![range(16)],
        backend: None,
    };
    let mut with_guard = mappings.to_vec();
    with_guard.insert(10, guard);
    let sorted = sort(&with_guard, &known);
    let expected = [
        (Owner::Files, 30),
        (Owner::Variables, 10),
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
    assert_eq!(all - sorted.resident.iter().sum::<u64>(), 136, "unowned");
    let parts = sorted.parts.iter().map(|part| part.resident);
    assert_eq!(all - parts.sum::<u64>(), 136, "no part is missing or twice");
    assert!(sorted.c_heap.len() == 1 && sorted.c_heap[0] == range(2));
}

/// Calls of the program for a part of a block, after which the kernel lists several mappings.
#[cfg(not(miri))]
#[test]
#[cfg_attr(plimsoll_sanitized, ignore = "sanitizers lock no memory")]
fn a_block_is_found_whose_mapping_the_kernel_has_split() {
    use plimsoll_process::smaps::{PrivateFiles, mappings};

    const LENGTH: usize = 64 * PAGE;
    type Way<'a> = (&'a str, &'a dyn Fn(&Range<usize>) -> i32);
    let advise = |advice| {
        move |part: &Range<usize>| {
            // SAFETY: the advice keeps the contents of the memory.
            unsafe { libc::madvise(part.start as *mut _, part.len(), advice) }
        }
    };
    let protect = |access| {
        move |part: &Range<usize>| {
            // SAFETY: the test makes no access to that part.
            unsafe { libc::mprotect(part.start as *mut _, part.len(), access) }
        }
    };
    let lock = |part: &Range<usize>| {
        // SAFETY: the call keeps the memory.
        unsafe { libc::mlock(part.start as *const _, part.len()) }
    };
    let ways: [Way<'_>; 5] = [
        ("not forked", &advise(libc::MADV_DONTFORK)),
        ("not dumped", &advise(libc::MADV_DONTDUMP)),
        ("locked", &lock),
        ("read only", &protect(libc::PROT_READ)),
        ("inaccessible", &protect(libc::PROT_NONE)),
    ];
    for (name, way) in ways {
        // Two blocks, with a page before and behind them that no other mapping is merged with.
        let base = plimsoll_sys::os::region::map(2 * LENGTH + 2 * PAGE).unwrap();
        let start = base + PAGE;
        for guard in [base, start + 2 * LENGTH] {
            let none = libc::PROT_NONE;
            assert_eq!(protect(none)(&(guard..guard + PAGE)), 0, "{name}");
        }
        for block in [start, start + LENGTH] {
            // SAFETY: the test made this mapping. The second word of a block that the C library
            // maps separately is its length, with a flag.
            unsafe {
                (block as *mut u8).write_bytes(7, LENGTH);
                (block as *mut usize).write(0);
                (block as *mut usize).add(1).write(LENGTH | 2);
            }
        }
        for part in [1..LENGTH / PAGE, 80..90] {
            let part = start + part.start * PAGE..start + part.end * PAGE;
            assert_eq!(way(&part), 0, "{name}: {}", std::io::Error::last_os_error());
        }
        let listed = mappings(PrivateFiles::Divided).unwrap();
        let inside = start..start + 2 * LENGTH;
        let listed: Vec<Mapping> = listed
            .into_iter()
            .filter(|mapping| mapping.range.start < inside.end && mapping.range.end > inside.start)
            .collect();
        assert!(listed.len() >= 4, "{name}: {listed:?}");
        let sorted = sort(&listed, &Known::default());
        let blocks = [start..start + LENGTH, start + LENGTH..start + 2 * LENGTH];
        assert_eq!(sorted.c_heap, blocks, "{name}");
        assert_eq!(sorted.resident(Owner::CHeap), 2 * LENGTH as u64, "{name}");
        // SAFETY: the test made this mapping, and no reference into it remains.
        unsafe { libc::munmap(base as *mut _, 2 * LENGTH + 2 * PAGE) };
    }
}

/// The system merges the mapping of a stack with that of a heap block behind it.
#[test]
fn a_heap_block_behind_a_stack_is_found_whether_the_thread_lives_or_not() {
    const STACK: usize = 8 << 20;
    const BLOCK: usize = 1 << 20;
    let start = plimsoll_sys::os::region::map(STACK + BLOCK).unwrap();
    let (stack, block) = (start..start + STACK, start + STACK..start + STACK + BLOCK);
    // SAFETY: the test made this mapping. The second word of a block that the C library maps
    // separately is its length, with a flag.
    unsafe { (block.start as *mut usize).add(1).write(BLOCK | 2) };
    let touched = (stack.end - PAGE) as *mut u8;
    // SAFETY: the test made this mapping.
    unsafe { touched.write(1) };
    let guard = Mapping {
        accessible: false,
        range: start - PAGE..start,
        ..mapping(0..1, "", 0, 0)
    };
    let merged = Mapping {
        range: stack.start..block.end,
        ..mapping(0..1, "", 2 * PAGE as u64, 2 * PAGE as u64)
    };
    let ended = Known {
        past_stacks: vec![stack.clone()],
        ..Known::default()
    };
    let lives = Known {
        stacks: vec![stack.clone()],
        ..ended.clone()
    };
    for (known, owner) in [(ended, Owner::KeptStacks), (lives, Owner::Stacks)] {
        let sorted = sort(&[guard.clone(), merged.clone()], &known);
        assert_eq!(sorted.c_heap, std::slice::from_ref(&block), "{owner:?}");
        assert_eq!(sorted.mapped(owner), STACK as u64);
        assert_eq!(sorted.mapped(Owner::CHeap), BLOCK as u64, "{owner:?}");
        // Its shares depend on huge pages, and on the kernel's means to tell pages of zeros.
        let resident = sorted.resident(owner) + sorted.resident(Owner::CHeap);
        assert_eq!(resident, 2 * PAGE as u64, "{owner:?}");
    }
    // SAFETY: the test made this mapping, and no reference into it remains.
    unsafe { libc::munmap(start as *mut _, STACK + BLOCK) };
}

/// A backend whose structures begin with their length and a mark.
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
    let step = STRUCTURES_STEP;
    let memory = plimsoll_sys::os::region::map(6 * step).unwrap();
    let first = memory.next_multiple_of(step);
    let range = memory..first + 5 * step - PAGE;
    let begin = |number: usize, length: usize| {
        let words = (first + number * step) as *mut usize;
        // SAFETY: the address lies within the mapping made above.
        unsafe {
            words.write(length);
            words.add(1).write(0x5eed);
        }
    };
    begin(0, 100);
    // The structure at the next step lies within this one.
    begin(1, step + 1);
    begin(2, step);
    begin(3, PAGE);
    // Longer than the rest of the range.
    begin(4, step);
    let expected = [
        first..first + 100,
        first + step..first + 2 * step + 1,
        first + 3 * step..first + 3 * step + PAGE,
    ];
    assert_eq!(structures(&range, &Marked), expected);
    // SAFETY: the test made this mapping, and no reference into it remains.
    unsafe { libc::munmap(memory as *mut _, 6 * step) };
    assert!(structures(&range, &Marked).is_empty());
}

fn of_program(range: Range<usize>, of_allocator: bool) -> Mapped {
    Mapped {
        range,
        of_allocator,
        caller: &[],
    }
}

#[test]
fn mappings_exclude_those_of_other_owners_and_merge_with_neighbours() {
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
    let cut = separate(vec![5..9, 1..3, 2..4, 6..7, 4..5]);
    assert_eq!(cut, [1..3, 3..4, 4..5, 5..9]);
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
