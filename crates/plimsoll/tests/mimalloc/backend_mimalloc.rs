//! mimalloc with its backend, compared with mimalloc's own statistics and the kernel's figures.

use plimsoll_checks::{pages, relations};
use plimsoll_testkit::child;
use std::hint::black_box;
use std::sync::Barrier;

use plimsoll::stats::backend::MiMalloc;
use plimsoll::stats::{self, Exactness, Pages};
use plimsoll::{heap_stats, mem_stats};

#[path = "../suite/mod.rs"]
mod suite;

use pages::{MIB, resident, touched};

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

fn reported() -> Pages {
    stats::backend().expect("one exists").pages()
}

/// Returns the bytes of the process's address space, as the kernel reports them.
fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm is readable");
    let pages = statm
        .split(' ')
        .next()
        .expect("the first is the mapped size");
    pages.parse::<u64>().expect("a number") * 4096
}

/// Returns the figure `name` from mimalloc's own statistics in JSON.
fn dump(name: &str) -> u64 {
    unsafe extern "C" {
        fn mi_stats_get_json(size: usize, buffer: *mut u8) -> *const u8;
    }
    let mut text = vec![0_u8; 1 << 16];
    // SAFETY: the buffer has the length that is passed, and mimalloc ends its text with a zero
    // byte.
    unsafe { mi_stats_get_json(text.len(), text.as_mut_ptr()) };
    let text = String::from_utf8_lossy(&text).into_owned();
    let of_name = text
        .split(&format!("\"{name}\""))
        .nth(1)
        .expect("it exists");
    let current = of_name
        .split("\"current\":")
        .nth(1)
        .expect("a current value");
    let digits = current.trim_start();
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap();
    digits[..end].parse().expect("a number")
}

#[test]
fn touched_and_released_pages_match_the_systems_figures() {
    tested(
        "touched_and_released_pages_match_the_systems_figures",
        || {
            let (empty, resident_empty) = (mem_stats(), resident());
            assert_eq!(empty.pages.reserved.exactness, Exactness::Exact);
            assert_eq!(empty.pages.committed.exactness, Exactness::Exact);
            assert_eq!(empty.pages.metadata.exactness, Exactness::Exact);
            assert_eq!(empty.pages.active.exactness, Exactness::Absent);
            let blocks: Vec<_> = (0..1024).map(|_| touched(64 << 10)).collect();
            let (full, resident_full) = (mem_stats(), resident());
            let grown = full.pages.committed.bytes - empty.pages.committed.bytes;
            assert!(
                (64 * MIB..84 * MIB).contains(&grown),
                "{grown} more committed"
            );
            assert!(resident_full - resident_empty >= 63 * MIB);
            drop(blocks);
            plimsoll::free_os_memory();
            let (given_back, resident_after) = (mem_stats(), resident());
            let released = given_back.heap_released - full.heap_released;
            assert!(
                (63 * MIB..84 * MIB).contains(&released),
                "{released} released"
            );
            assert!(resident_full - resident_after >= 63 * MIB);
            assert_eq!(given_back.pages.reserved, full.pages.reserved);
            // Resident memory has been committed.
            let committed = given_back.pages.committed.bytes + given_back.pages.metadata.bytes;
            assert!(committed + 32 * MIB > resident_after);
            assert!(given_back.heap_slack == 0 && full.heap_slack == 0);
        },
    );
}

/// The bitmap does not drift: after rounds of all sizes by two threads, it returns to its start.
#[test]
fn committed_does_not_drift() {
    tested("committed_does_not_drift", || {
        // In each round, both threads have heaps at once: these take reserved memory.
        let both = &*Box::leak(Box::new(Barrier::new(2)));
        let round = |seed: u64| {
            let fill = move |seed: u64| {
                drop(black_box(vec![0_u8; 100]));
                both.wait();
                let mut random = seed + 1;
                let mut kept: Vec<Vec<u8>> = vec![Vec::new(); 100];
                for _ in 0..5000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let size = 16 << ((random >> 40) % 17);
                    kept[(random >> 20) as usize % 100] = touched(size);
                }
                kept
            };
            let threads = [seed, seed + 1].map(|seed| std::thread::spawn(move || fill(seed)));
            threads.map(|thread| thread.join().unwrap())
        };
        drop(round(1));
        plimsoll::free_os_memory();
        let first = (reported(), resident());
        for seed in 2..6 {
            let kept = round(seed);
            let full = (reported(), resident());
            drop(kept);
            plimsoll::free_os_memory();
            let empty = (reported(), resident());
            assert_eq!(empty.0.reserved, first.0.reserved);
            assert_eq!(empty.0.metadata, first.0.metadata);
            let committed = empty.0.committed.bytes.abs_diff(first.0.committed.bytes);
            assert!(committed <= 8 * MIB, "{committed} off after {seed}");
            // The decrease that the kernel sees is the reported one, except for pages never
            // touched.
            let reported = full.0.committed.bytes - empty.0.committed.bytes;
            let seen = full.1.saturating_sub(empty.1);
            assert!(reported + MIB >= seen, "{reported} reported, {seen} seen");
            assert!(seen > 10 * MIB);
        }
    });
}

/// Blocks that fit into no arena have separate mappings, which are gone once they are freed.
#[test]
fn mappings_of_mimallocs_own_are_reported() {
    tested("mappings_of_mimallocs_own_are_reported", || {
        let before = (reported(), mapped(), dump("reserved"));
        let huge: Vec<u8> = black_box(Vec::with_capacity(3 << 30));
        let with = (reported(), mapped(), dump("reserved"));
        let grown = with.0.reserved.bytes - before.0.reserved.bytes;
        assert!(grown >= 3 << 30);
        assert_eq!(grown, with.2 - before.2, "mimalloc reports the same");
        assert!(
            (with.1 - before.1).abs_diff(grown) <= 8 * MIB,
            "and the system"
        );
        assert_eq!(with.0.committed.exactness, Exactness::Exact);
        let committed = with.0.committed.bytes - before.0.committed.bytes;
        assert!(committed >= 3 << 30);
        drop(huge);
        plimsoll::free_os_memory();
        let rest = dump("reserved") - before.2;
        assert!(rest < MIB, "for mimalloc's own structures");
        assert_eq!(reported().reserved.bytes, before.0.reserved.bytes + rest);
        assert!(reported().committed.bytes <= before.0.committed.bytes + MIB);
    });
}

/// When an arena fills up, the next one is ready.
#[test]
fn arenas_are_added_before_the_last_is_full() {
    tested("arenas_are_added_before_the_last_is_full", || {
        let before = reported();
        // None of these blocks is touched.
        let blocks: Vec<Vec<u8>> = (0..60).map(|_| Vec::with_capacity(100 << 20)).collect();
        let after = reported();
        assert!(after.reserved.bytes >= before.reserved.bytes + (7 << 30));
        assert_eq!(after.committed.exactness, Exactness::Exact);
        assert!(after.committed.bytes - before.committed.bytes >= 60 * 100 * MIB);
        assert_eq!(after.active.known(), None);
        drop(blocks);
        plimsoll::free_os_memory();
        let emptied = reported();
        assert!(emptied.committed.bytes <= before.committed.bytes + 16 * MIB);
        assert_eq!(emptied.reserved, after.reserved);
    });
}

/// mimalloc puts a block that does not fit into the arenas into memory whose release no callback
/// reports.
#[test]
fn committed_bytes_are_racy_beside_memory_outside_the_arenas() {
    tested(
        "committed_bytes_are_racy_beside_memory_outside_the_arenas",
        || {
            let mut blocks: Vec<Vec<u8>> = (0..25).map(|_| Vec::with_capacity(100 << 20)).collect();
            let before = reported();
            assert_eq!(before.committed.exactness, Exactness::Exact);
            blocks.push(Vec::with_capacity(1900 << 20));
            let after = reported();
            assert_eq!(after.committed.exactness, Exactness::Racy);
            let grown = after.committed.bytes - before.committed.bytes;
            assert!(
                grown >= 1900 * MIB,
                "the report covers at least the memory in use"
            );
            assert_eq!(after.reserved.exactness, Exactness::Exact);
            assert!(after.reserved.bytes > before.reserved.bytes);
            relations::assert_relations(&mem_stats());
            drop(black_box(blocks));
        },
    );
}

/// Go's case 10.
#[test]
fn free_os_memory_releases() {
    tested("free_os_memory_releases", || {
        let (before, after) = pages::free_os_memory_gives_back();
        assert!(after.heap_released - before.heap_released >= 16 * MIB);
    });
}

/// Go's case 11: a heap with holes takes little more memory than its blocks. Blocks of up to 512
/// KiB share memory that mimalloc returns only as a whole, so there the holes stay.
#[test]
fn a_heap_with_holes_is_given_back() {
    tested("a_heap_with_holes_is_given_back", || {
        const CHUNK: usize = 1 << 20;
        let mut chunks: Vec<_> = (0..64).map(|_| Some(touched(CHUNK))).collect();
        chunks.iter_mut().step_by(2).for_each(|chunk| *chunk = None);
        let large = touched(16 << 20);
        plimsoll::free_os_memory();
        let stats = mem_stats();
        relations::assert_relations(&stats);
        let over = (stats.heap_sys - stats.heap_released) as f64 - 524_288.0;
        let overhead = (over - stats.heap_alloc as f64) / stats.heap_alloc as f64;
        assert!(overhead <= 0.10 + 65_536.0 / CHUNK as f64, "{overhead}");
        drop((chunks, large));
    });
}

#[test]
fn the_callback_allocates_nothing() {
    tested("the_callback_allocates_nothing", || {
        let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(300);
        let (before, pages_before) = (heap_stats(), reported());
        for at in 0..300 {
            blocks.push(Vec::with_capacity(100_000 * (1 + at % 100)));
        }
        let pages_full = reported();
        blocks
            .iter_mut()
            .step_by(3)
            .for_each(|block| *block = Vec::new());
        plimsoll::free_os_memory();
        let after = heap_stats();
        assert_eq!(after.large.mallocs - before.large.mallocs, 300);
        assert_eq!(after.large.frees - before.large.frees, 100);
        assert!(pages_full.committed.bytes > pages_before.committed.bytes + 1000 * MIB);
        assert!(reported().committed.bytes + 300 * MIB < pages_full.committed.bytes);
        assert!(
            after.mallocs - before.mallocs < 350,
            "less than one for each call"
        );
        assert!(relations::allocates_nothing(|| {
            black_box(mem_stats());
        }));
    });
}

#[test]
fn a_forks_child_goes_on_counting() {
    tested("a_forks_child_goes_on_counting", || {
        let kept: Vec<_> = (0..100).map(|_| touched(100_000)).collect();
        let before = reported();
        // SAFETY: no other thread held a lock that the child needs.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let ok = std::panic::catch_unwind(|| {
                    assert_eq!(reported(), before);
                    let more: Vec<_> = (0..1000).map(|_| touched(100_000)).collect();
                    assert!(reported().committed.bytes >= before.committed.bytes + 90 * MIB);
                    drop((kept, more));
                    plimsoll::free_os_memory();
                    assert!(reported().committed.bytes < before.committed.bytes);
                });
                libc::_exit(i32::from(ok.is_err()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0, "the child's output is above");
        }
        assert_eq!(reported(), before);
    });
}

/// Where arenas would change how mimalloc works, or address space is short, Plimsoll makes none.
#[test]
fn pages_are_absent_if_mimalloc_has_other_arenas() {
    const NAME: &str = "pages_are_absent_if_mimalloc_has_other_arenas";
    const EXPECTED: &str = "PLIMSOLL_TEST_IS_TOLD";
    if let Some(expected) = std::env::var_os(EXPECTED) {
        drop((0..100).map(|at| touched(at << 10)).collect::<Vec<_>>());
        plimsoll::free_os_memory();
        let stats = mem_stats();
        relations::assert_relations(&stats);
        assert_eq!(stats.pages != Pages::ABSENT, expected == "true");
        return;
    }
    for (setting, expected) in [
        ("export MIMALLOC_PURGE_DELAY=0", "true"),
        ("export MIMALLOC_PURGE_DECOMMITS=0", "false"),
        ("export MIMALLOC_ALLOW_LARGE_OS_PAGES=1", "false"),
        ("export MIMALLOC_DISALLOW_ARENA_ALLOC=1", "false"),
        ("export MIMALLOC_PAGE_COMMIT_ON_DEMAND=1", "false"),
        ("export MIMALLOC_RESERVE_OS_MEMORY=1GiB", "false"),
        ("ulimit -v 64000000", "false"),
    ] {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("{setting}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args([&*plimsoll_testkit::child::full_name(NAME), "--exact"])
            .env(EXPECTED, expected)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{setting}: {said}"
        );
    }
}

/// An arena of mimalloc's own has this advice, by the same options.
#[test]
fn arenas_have_huge_pages_where_mimallocs_have_them() {
    const NAME: &str = "arenas_have_huge_pages_where_mimallocs_have_them";
    const EXPECTED: &str = "PLIMSOLL_TEST_EXPECTED";
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return plimsoll_testkit::skip!("the kernel has no transparent huge pages");
    }
    if let Ok(expected) = std::env::var(EXPECTED) {
        let block = black_box(vec![1_u8; 100_000]);
        let address = block.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        let flags = maps.lines().find_map(|line| {
            let range = line.split(' ').next()?.split_once('-');
            let range = range.and_then(|(from, to)| {
                let number = |text| usize::from_str_radix(text, 16).ok();
                Some(number(from)?..number(to)?)
            });
            is_here = range.map_or(is_here, |range| range.contains(&address));
            line.strip_prefix("VmFlags:").filter(|_| is_here)
        });
        let flags = flags.expect("the block is in a mapping");
        let is_huge = flags.split(' ').any(|flag| flag == "hg");
        assert_eq!(is_huge.to_string(), expected, "{flags}");
        return;
    }
    for (name, value, expected) in [
        ("MIMALLOC_ALLOW_THP", "1", "true"),
        ("MIMALLOC_ALLOW_THP", "0", "false"),
        ("MIMALLOC_ARENA_EAGER_COMMIT", "0", "false"),
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&*plimsoll_testkit::child::full_name(NAME), "--exact"])
            .env(name, value)
            .env(EXPECTED, expected)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{name}={value}: {said}"
        );
    }
}

#[test]
fn relations_hold_in_every_reading_under_load() {
    tested("relations_hold_in_every_reading_under_load", || {
        let (readings, with_slack) = pages::read_under_load(5000, 10);
        eprintln!("{with_slack} of {readings} readings with slack");
        assert!(with_slack * 100 <= readings);
    });
}

#[test]
fn metrics_agree_while_large_blocks_churn() {
    tested(
        "metrics_agree_while_large_blocks_churn",
        pages::metrics_agree_while_large_blocks_churn,
    );
}

#[test]
fn blocks_have_the_requested_size_and_alignment() {
    tested("blocks_have_the_requested_size_and_alignment", || {
        pages::blocks_have_the_requested_size_and_alignment(&MiMalloc);
        pages::blocks_have_the_requested_size_and_alignment(&crate::ALLOC);
        assert_eq!(mem_stats().heap_slack, 0);
    });
}
