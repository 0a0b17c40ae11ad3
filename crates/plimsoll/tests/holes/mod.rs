//! Tests of free space in pages and of the owners of resident memory, for every allocator that
//! reports its pages.

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::http;
use plimsoll::stats::{ClassSpace, Fragmentation, Reconciliation, fragmentation, reconcile};
use plimsoll_checks::profile::read_profile;

use super::pages::{MIB, churn, touched};
use super::pprof;
use super::relations::Until;

/// Returns the space of the class that holds blocks of `size` bytes.
pub fn class_of(reading: &Fragmentation, size: usize) -> ClassSpace {
    let mut classes = reading.classes.iter();
    *classes
        .find(|class| class.above < size && size <= class.largest)
        .expect("the size class exists")
}

fn reading() -> Fragmentation {
    fragmentation().expect("this allocator reports its pages")
}

/// Blocks that are separate allocations.
pub type Blocks<const SIZE: usize> = Vec<Box<[u8; SIZE]>>;

/// Allocates `blocks` blocks of `SIZE` bytes and writes to all of them.
pub fn filled<const SIZE: usize>(blocks: usize) -> Blocks<SIZE> {
    (0..blocks).map(|at| Box::new([at as u8; SIZE])).collect()
}

/// Fills pages with 40,000 blocks of `SIZE` bytes, which the allocator rounds up to `made`. Then
/// frees all but one block of each slab of `slab` bytes. The reported free space is correct to 1 %,
/// or to a few slabs.
pub fn one_of_each_slab_is_left<const SIZE: usize>(made: usize, slab: usize) {
    const BLOCKS: usize = 40_000;
    let before = class_of(&reading(), SIZE);
    let mut blocks = filled::<SIZE>(BLOCKS);
    let full = class_of(&reading(), SIZE);
    assert!(full.above < made && made <= full.largest);
    let bytes = (BLOCKS * made) as u64;
    let few = 8 * slab as u64 + bytes / 100;
    let near = |is: u64, expected: u64| assert!(is.abs_diff(expected) <= few, "{is} {expected}");
    near(full.in_use_bytes - before.in_use_bytes, bytes);
    near(full.sparse(), before.sparse());
    // Keeps every other block.
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    plimsoll::free_os_memory();
    let half = class_of(&reading(), SIZE);
    near(half.sparse(), before.sparse() + bytes / 2);
    near(half.active, full.active);
    // Keeps one block of each slab.
    let mut seen = HashSet::new();
    blocks.retain(|block| seen.insert(block.as_ptr() as usize / slab));
    plimsoll::free_os_memory();
    let sparse = class_of(&reading(), SIZE);
    let kept = blocks.len() as u64;
    eprintln!("{SIZE}: {before:?}\n{full:?}\n{half:?}\n{kept} kept: {sparse:?}");
    near(sparse.active, full.active);
    near(sparse.active, kept * slab as u64);
    near(
        sparse.in_use_bytes - before.in_use_bytes.min(sparse.in_use_bytes),
        kept * made as u64,
    );
    near(sparse.sparse(), kept * (slab - made) as u64);
    let live = sparse.live.expect("sizes of both end here");
    assert!(
        live.blocks >= kept - kept / 10 && live.blocks <= kept + 500,
        "{live:?}"
    );
    drop(blocks);
    plimsoll::free_os_memory();
    let empty = class_of_any(SIZE);
    near(empty, before.active);
}

/// Returns the active bytes of the class of `size`: 0 if all of its pages are gone.
fn class_of_any(size: usize) -> u64 {
    let reading = reading();
    let mut classes = reading.classes.iter();
    classes
        .find(|class| class.above < size && size <= class.largest)
        .map_or(0, |class| class.active)
}

#[inline(never)]
fn many() -> Blocks<700> {
    black_box(filled(60_000))
}

#[inline(never)]
fn few() -> Blocks<700> {
    black_box(filled(20_000))
}

/// Sites share the free space in proportion to their live blocks: here three quarters and one
/// quarter.
pub fn sites_of_sparse_pages_are_named() {
    let (mut many, mut few) = (many(), few());
    for blocks in [&mut many, &mut few] {
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 4 == 0
        });
    }
    plimsoll::free_os_memory();
    let profile = read_profile("fragmentation");
    assert_eq!(profile.sample_types(), [("sparse_space", "bytes")]);
    let of = |name: &str| -> i64 {
        let by = |sample: &&pprof::Sample| {
            let names = profile.names(sample);
            names.iter().any(|function| function.contains(name))
        };
        let samples = profile.sample.iter().filter(by);
        samples.map(|sample| sample.value[0]).sum()
    };
    let all: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    let expected = reading().sparse() as i64;
    assert!((all - expected).abs() < MIB as i64, "{all} {expected}");
    let sparse = class_of(&reading(), 700).sparse() as f64;
    assert!(sparse > 60_000.0 * 700.0 * 0.9, "{sparse}");
    let (many_hold, few_hold) = (of("holes::many") as f64, of("holes::few") as f64);
    // About a thousand samples: a relative error of about a twentieth.
    let share = many_hold / (many_hold + few_hold);
    assert!((share - 0.75).abs() < 0.08, "{share}");
    assert!(
        (many_hold + few_hold) / sparse > 0.95,
        "{many_hold} {few_hold} {sparse}"
    );
    let memory = read_profile("memory");
    let free = memory.sample.iter().filter(|sample| {
        let names = memory.names(sample);
        names.contains(&"[heap: free space in pages]")
            && names.iter().any(|name| name.contains("holes::many"))
    });
    let free: i64 = free.map(|sample| sample.value[0]).sum();
    assert!(
        (free as f64 / many_hold - 1.0).abs() < 0.1,
        "{free} {many_hold}"
    );
    let text = http::handle("GET", "/debug/pprof/fragmentation", "debug=1");
    let text = String::from_utf8(text.body).unwrap();
    assert!(text.starts_with("fragmentation profile: "), "{text}");
    let first = text.lines().position(|line| line.contains("holes::many"));
    let second = text.lines().position(|line| line.contains("holes::few"));
    assert!(
        first.unwrap() < second.unwrap(),
        "the most is first\n{text}"
    );
    drop((many, few));
}

pub fn pages() {
    let mut blocks = filled::<500>(10_000);
    blocks.truncate(100);
    let text = http::handle("GET", "/debug/plimsoll/fragmentation", "");
    assert_eq!(text.status, 200);
    let text = String::from_utf8(text.body).unwrap();
    eprintln!("{}", &text[..text.len().min(6000)]);
    for begins in [
        "pages of ",
        "blocks of bytes",
        "all ",
        "sparse: ",
        "fragmentation profile: ",
    ] {
        let mut lines = text.lines();
        let begins = |line: &str| line.trim_start().starts_with(begins);
        assert!(lines.any(begins), "{text}");
    }
    let json = http::handle("GET", "/debug/plimsoll/fragmentation", "format=json");
    let json: serde_json::Value = serde_json::from_slice(&json.body).unwrap();
    assert_eq!(json["backend"], reading().backend);
    let classes = json["classes"].as_array().unwrap();
    let sum = |of: &str| -> u64 {
        classes
            .iter()
            .map(|class| class[of].as_u64().unwrap())
            .sum()
    };
    assert_eq!(json["active"], sum("active"));
    assert_eq!(json["sparse"], sum("sparse"));
    assert!(json["sparse"].as_u64() <= json["active"].as_u64());
    assert!(
        classes
            .iter()
            .all(|class| class["room"].as_u64() >= class["in_use"].as_u64())
    );
    assert!(
        classes
            .iter()
            .any(|class| class["live"]["blocks"].as_u64() >= Some(100))
    );
    let index = http::handle("GET", "/debug/pprof/", "");
    let index = String::from_utf8(index.body).unwrap();
    assert!(index.contains("'../plimsoll/fragmentation'") && index.contains(">fragmentation<"));
}

/// Reads while four threads allocate blocks of all sizes and other threads start and end. Passes
/// each reading to `look`. With `another`, a second thread reads all the time.
pub fn read_under_load(readings: usize, another: bool, mut look: impl FnMut(&Fragmentation)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let until = Until(&stop);
        let threads = [0, 1, 2, 3].map(|seed| {
            let stop = &stop;
            scope.spawn(move || churn(seed, stop))
        });
        let others = [
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let brief = std::thread::spawn(|| black_box(filled::<300>(1000)).truncate(1));
                    brief.join().unwrap();
                }
            }),
            scope.spawn(|| {
                while another && !stop.load(Ordering::Relaxed) {
                    reading();
                }
            }),
        ];
        for _ in 0..readings {
            let reading = reading();
            let mut above = 0;
            for class in &reading.classes {
                assert!(
                    class.above >= above && class.above < class.largest,
                    "{class:?}"
                );
                above = class.largest;
                assert!(class.in_use <= class.room, "{class:?}");
                assert!(class.in_use_bytes <= class.active, "{class:?}");
            }
            look(&reading);
        }
        drop(until);
        for thread in threads {
            assert!(thread.join().unwrap() > 0);
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// The child of a fork has the pages of its parent and none of its threads.
pub fn a_forks_child_can_ask() {
    let kept = filled::<1000>(10_000);
    let before = class_of(&reading(), 1000);
    // SAFETY: the child exits without returning; no other thread held a lock that the child needs.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            let ok = std::panic::catch_unwind(|| {
                let after = class_of(&reading(), 1000);
                assert_eq!(after.active, before.active);
                drop(kept);
                plimsoll::free_os_memory();
                assert!(class_of_any(1000) < before.active / 10);
                assert!(reconcile().unexplained_share().unwrap().abs() < 0.1);
            });
            libc::_exit(i32::from(ok.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0, "the child's output is above");
    }
}

fn row(reconciliation: &Reconciliation, name: &str) -> i64 {
    let mut rows = reconciliation.rows.iter();
    let row = rows.find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{name}: {reconciliation}"))
        .resident as i64
}

/// The samples of the profile `memory` sum to the resident memory, of which at most 2 % is
/// unexplained.
fn sums_to_resident() {
    let profile = read_profile("memory");
    let comments = profile.comments();
    eprintln!("{comments:?}");
    let all: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    let begins = format!("plimsoll: resident: {all} bytes: ");
    assert!(comments[0].starts_with(&begins), "{all} {comments:?}");
    let unexplained = profile.sample.iter().find(|sample| {
        let names = profile.names(sample);
        names == ["[unexplained]"]
    });
    let unexplained = unexplained.map_or(0, |sample| sample.value[0]);
    assert!(unexplained * 50 <= all, "{comments:?}");
}

/// With 100 MiB in blocks, and after half of these are freed, nearly all resident memory has an
/// owner.
pub fn memory_has_owners() {
    let mib = MIB as i64;
    let in_use = |reconciliation: &Reconciliation| {
        row(reconciliation, "heap: blocks in use") + row(reconciliation, "heap: sampled blocks")
    };
    let held = |reconciliation: &Reconciliation| row(reconciliation, "heap: held or fragmented");
    let near = |is: i64, expected: i64| {
        assert!((is - expected).abs() < 4 * mib, "{is} is not {expected}");
    };
    let explained = |reconciliation: &Reconciliation| {
        eprintln!("{reconciliation}");
        let share = reconciliation
            .unexplained_share()
            .expect("/proc is mounted");
        assert!(share.abs() <= 0.05, "{share}");
        sums_to_resident();
    };
    let empty = reconcile();
    let mut small = filled::<1000>(50_000);
    // Blocks of other threads, which allocate in separate memory.
    let threads = [30_000, 100_000, 700_000].map(|size| {
        std::thread::spawn(move || -> Vec<Vec<u8>> {
            (0..17_000_000 / size).map(|_| touched(size)).collect()
        })
    });
    let mut larger: Vec<Vec<u8>> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    let full = reconcile();
    explained(&full);
    near(in_use(&full) - in_use(&empty), 101_000_000);
    let mut number = 0;
    small.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    larger.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let half = reconcile();
    explained(&half);
    near(in_use(&half) - in_use(&empty), 50_500_000);
    // The freed small blocks are still resident.
    assert!(held(&half) - held(&full) > 20_000_000);
    // A block that is in use, and not resident, takes nothing from the memory that is held.
    let untouched = black_box(vec![0u8; 1 << 30]);
    let with = reconcile();
    explained(&with);
    near(in_use(&with) - in_use(&half), 0);
    // Except for pages that the allocator returns to the system meanwhile, as mimalloc does after a delay.
    let resident = |of: &Reconciliation| of.kernel.as_ref().unwrap().resident as i64;
    let returned = (resident(&half) - resident(&with)).max(0);
    near(held(&with) - held(&half), -returned);
    drop(untouched);
    plimsoll::free_os_memory();
    let purged = reconcile();
    explained(&purged);
    near(in_use(&purged) - in_use(&empty), 50_500_000);
    drop(black_box((small, larger)));
    plimsoll::free_os_memory();
    let emptied = reconcile();
    eprintln!("{emptied}");
    near(in_use(&emptied) - in_use(&empty), 0);
    near(emptied.unexplained().unwrap(), empty.unexplained().unwrap());
}

/// Memory that the program maps outside the allocator does not count as the allocator's.
pub fn other_mappings_are_nobodys() {
    let before = reconcile();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let bytes = 30 << 20;
    // SAFETY: a new mapping, which is written to within its length.
    let mapped = unsafe {
        let mapped = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        mapped.cast::<u8>().write_bytes(7, bytes);
        mapped
    };
    let during = reconcile();
    // Unowned memory; with the feature `mmap`, the program's mappings.
    let others = |reconciliation: &Reconciliation| {
        if cfg!(feature = "mmap") {
            let mut rows = reconciliation.rows.iter();
            let mapped = rows.find(|row| row.name == "mapped by the program");
            mapped.unwrap().resident as i64
        } else {
            reconciliation.unexplained().unwrap()
        }
    };
    let more = others(&during) - others(&before);
    assert!(
        (more - bytes as i64).abs() < MIB as i64,
        "{more}\n{before}{during}"
    );
    // SAFETY: mapped above.
    unsafe { libc::munmap(mapped, bytes) };
}
