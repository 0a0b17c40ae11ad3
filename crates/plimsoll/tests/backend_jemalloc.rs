//! jemalloc with its backend, compared with jemalloc's own statistics and the kernel's figures.

#[global_allocator]
static ALLOC: plimsoll::Alloc<Jemalloc> = plimsoll::Alloc::jemalloc();

use plimsoll_checks::{pages, relations};
use plimsoll_testkit::child;
use std::ffi::CString;
use std::hint::black_box;
use std::ptr::null_mut;

use plimsoll::stats::backend::Jemalloc;
use plimsoll::stats::{self, Exactness, Pages};
use plimsoll::{heap_stats, mem_stats};

#[path = "suite/mod.rs"]
mod suite;

use pages::{MIB, resident, touched};

const PAGE: u64 = 4096;

fn tested(name: &str, test: fn()) {
    child::run(name, "", test);
}

/// Reads the figure `name` of jemalloc, after setting it to `value` if given.
fn mallctl<T: Copy>(name: &str, value: Option<T>) -> T {
    let name = CString::new(name).unwrap();
    let mut is = std::mem::MaybeUninit::<T>::uninit();
    let mut size = size_of::<T>();
    let mut set = value;
    let (new, new_size) = match &mut set {
        Some(value) => (std::ptr::from_mut(value).cast(), size_of::<T>()),
        None => (null_mut(), 0),
    };
    // SAFETY: each caller passes the type of the named figure; `is` is read only after success.
    unsafe {
        let failed = tikv_jemalloc_sys::mallctl(
            name.as_ptr(),
            is.as_mut_ptr().cast(),
            &raw mut size,
            new,
            new_size,
        );
        assert_eq!(failed, 0, "{name:?}");
        is.assume_init()
    }
}

/// jemalloc's own figures at the time of the call, in bytes.
#[derive(Debug)]
struct Dump {
    active: u64,
    mapped: u64,
    retained: u64,
    /// Extents of all arenas: those in use, and free ones that are not purged.
    extents: u64,
}

impl Dump {
    fn now() -> Self {
        mallctl("epoch", Some(1_u64));
        let whole = |name: &str| mallctl::<usize>(&format!("stats.{name}"), None) as u64;
        let of_arenas = |name: &str| whole(&format!("arenas.4096.{name}")) * PAGE;
        Self {
            active: whole("active"),
            mapped: whole("mapped"),
            retained: whole("retained"),
            extents: of_arenas("pactive") + of_arenas("pdirty") + of_arenas("pmuzzy"),
        }
    }
}

fn reported() -> Pages {
    stats::backend().expect("one exists").pages()
}

/// Compares the backend's report with jemalloc's own figures, while nothing else runs. Returns the
/// committed bytes that are not in use yet, in memory mapped before the hooks were installed.
fn compare() -> u64 {
    // The first dump makes the allocations that dumps need.
    Dump::now();
    let (pages, dump) = (reported(), Dump::now());
    assert_eq!(pages.reserved.bytes, dump.extents + dump.retained);
    assert_eq!(pages.active.bytes, dump.active);
    let rest = pages.committed.bytes.checked_sub(dump.extents);
    rest.unwrap_or_else(|| panic!("{pages:?} {dump:?}"))
}

/// Runs two threads that each do 20,000 operations with blocks of 16 bytes to 4 MiB. Returns the
/// blocks that they keep, about 40 MiB for each thread.
fn work(seed: u64) -> Vec<Vec<u8>> {
    let keep = |seed: u64| {
        let mut random = seed + 1;
        let mut kept: Vec<Vec<u8>> = Vec::new();
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let mut block: Vec<u8> = Vec::with_capacity(16 << ((random >> 40) % 19));
            block.extend([1]);
            if kept.len() < 100 {
                kept.push(block);
            } else {
                kept[(random >> 20) as usize % 100] = block;
            }
        }
        kept
    };
    let threads = [seed, seed + 1].map(|seed| std::thread::spawn(move || keep(seed)));
    threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect()
}

/// The workload that showed which scheme of hooks is correct: fill, drop, purge, fill again.
#[test]
fn figures_are_those_of_jemalloc_to_the_byte() {
    tested("figures_are_those_of_jemalloc_to_the_byte", || {
        let mut rest = compare();
        assert!(rest < 2 * MIB, "{rest} bytes that are not in use");
        let (mut swing, mut reserved) = (Vec::new(), reported().reserved.bytes);
        for round in 0..4 {
            let kept = work(round * 10);
            let full = reported();
            let after = compare();
            assert!(after <= rest, "unused memory only decreases");
            rest = after;
            drop(kept);
            assert!(compare() <= rest);
            plimsoll::free_os_memory();
            assert!(compare() <= rest);
            let empty = reported();
            swing.push(full.committed.bytes - empty.committed.bytes);
            assert!(empty.reserved.bytes >= reserved, "nothing is unmapped");
            reserved = empty.reserved.bytes;
            let dump = Dump::now();
            let metadata = dump.mapped + dump.retained - empty.reserved.bytes;
            assert_eq!(reported().metadata.bytes, metadata);
            assert_eq!(metadata % (2 * MIB), 0);
        }
        assert!(swing.iter().all(|&bytes| bytes > 10 * MIB), "{swing:?}");
    });
}

/// Threads allocate at the same time, in all arenas.
#[test]
fn no_arena_escapes() {
    tested("no_arena_escapes", || {
        let rest = compare();
        for _ in 0..3 {
            let together = std::sync::Barrier::new(24);
            let fill = || {
                together.wait();
                let blocks: Vec<_> = (0..100).map(|at| touched(1000 * at)).collect();
                together.wait();
                drop(blocks);
            };
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..24).map(|_| scope.spawn(fill)).collect();
                // A scope does not wait until its threads have released their thread-local caches.
                for thread in threads {
                    thread.join().unwrap();
                }
            });
            assert!(compare() <= rest);
        }
        let arenas = mallctl::<u32>("arenas.narenas", None);
        assert!(arenas > 2, "at least two exist");
        assert_eq!(reported().reserved.exactness, Exactness::Exact);
        assert_eq!(reported().committed.exactness, Exactness::Exact);
        assert_eq!(reported().active.exactness, Exactness::Racy);
        // The backend knows the first metadata block of each arena without a query.
        let before = reported().metadata.bytes;
        assert!(before >= u64::from(arenas) * 2 * MIB);
        plimsoll::free_os_memory();
        assert!(reported().metadata.bytes >= before);
    });
}

#[test]
fn touched_and_released_pages_match_the_systems_figures() {
    tested(
        "touched_and_released_pages_match_the_systems_figures",
        || {
            let (empty, resident_empty) = (mem_stats(), resident());
            let blocks: Vec<_> = (0..1024).map(|_| touched(64 << 10)).collect();
            let (full, resident_full) = (mem_stats(), resident());
            // Each block has one more page, so that the blocks do not all begin at the same cache
            // lines.
            let grown = full.heap_inuse - empty.heap_inuse;
            assert!((64 * MIB..69 * MIB).contains(&grown), "{grown} more in use");
            assert!(resident_full - resident_empty >= 63 * MIB);
            drop(blocks);
            let idle = mem_stats();
            let freed = full.heap_inuse - idle.heap_inuse;
            assert!((64 * MIB..69 * MIB).contains(&freed), "{freed} not in use");
            plimsoll::free_os_memory();
            let (given_back, resident_after) = (mem_stats(), resident());
            let released = given_back.heap_released - full.heap_released;
            assert!(
                (64 * MIB..96 * MIB).contains(&released),
                "{released} released"
            );
            assert!(resident_full - resident_after >= 63 * MIB);
            assert_eq!(given_back.pages.reserved, full.pages.reserved);
            assert_eq!(
                [full.heap_slack, idle.heap_slack, given_back.heap_slack],
                [0; 3]
            );
            assert!(given_back.mspan_sys > 0);
            // Resident memory is never reported as released: the committed memory can hold all of
            // it.
            let committed = given_back.pages.committed.bytes + given_back.pages.metadata.bytes;
            assert!(committed + 32 * MIB > resident_after);
        },
    );
}

/// Blocks of 8 MiB and more are returned to the system as soon as they are freed, as without hooks.
#[test]
fn a_large_block_is_given_back_at_once() {
    tested("a_large_block_is_given_back_at_once", || {
        let before = reported();
        let block = touched(64 << 20);
        let with_block = reported();
        assert!(with_block.committed.bytes - before.committed.bytes >= 64 * MIB);
        assert!(with_block.reserved.bytes - before.reserved.bytes >= 64 * MIB);
        drop(block);
        let after = reported();
        assert!(after.committed.bytes <= before.committed.bytes + MIB / 8);
        assert_eq!(after.reserved, with_block.reserved);
        compare();
    });
}

/// Go's case 10.
#[test]
fn free_os_memory_releases() {
    tested("free_os_memory_releases", || {
        let (before, after) = pages::free_os_memory_gives_back();
        assert!(after.heap_released - before.heap_released >= 16 * MIB);
    });
}

/// Go's case 11: a heap with holes takes little more memory than its blocks.
#[test]
fn a_heap_with_holes_is_given_back() {
    tested("a_heap_with_holes_is_given_back", || {
        const CHUNK: usize = 64 << 10;
        let mut chunks: Vec<_> = (0..512).map(|_| Some(touched(CHUNK))).collect();
        chunks.iter_mut().step_by(2).for_each(|chunk| *chunk = None);
        let large = touched(16 << 20);
        plimsoll::free_os_memory();
        let stats = mem_stats();
        relations::assert_relations(&stats);
        let over = (stats.heap_sys - stats.heap_released) as f64 - 524_288.0;
        let overhead = (over - stats.heap_alloc as f64) / stats.heap_alloc as f64;
        assert!(overhead <= 0.10 + PAGE as f64 / CHUNK as f64, "{overhead}");
        assert!(stats.heap_alloc >= 32 * MIB);
        drop((chunks, large));
    });
}

/// Mapping, splitting and purging belong to the allocations that cause them.
#[test]
fn hooks_allocate_nothing() {
    tested("hooks_allocate_nothing", || {
        let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(300);
        let (before, pages_before) = (heap_stats(), reported());
        for at in 0..300 {
            blocks.push(Vec::with_capacity(100_000 * (1 + at % 100)));
        }
        blocks
            .iter_mut()
            .step_by(3)
            .for_each(|block| *block = Vec::new());
        plimsoll::free_os_memory();
        let after = heap_stats();
        assert_eq!(after.large.mallocs - before.large.mallocs, 300);
        assert_eq!(after.large.frees - before.large.frees, 100);
        assert!(reported().reserved.bytes > pages_before.reserved.bytes);
        // The test's own threads may allocate once or twice meanwhile.
        assert!(
            after.mallocs - before.mallocs < 350,
            "less than one for each hook"
        );
        assert!(relations::allocates_nothing(|| {
            black_box(mem_stats());
        }));
    });
}

#[test]
fn a_forks_child_goes_on_counting() {
    tested("a_forks_child_goes_on_counting", || {
        let kept = work(1);
        let before = reported();
        // SAFETY: no other thread held a lock that the child needs, so the child may call all of
        // this.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let ok = std::panic::catch_unwind(|| {
                    assert_eq!(reported().reserved, before.reserved);
                    compare();
                    let more = work(5);
                    compare();
                    drop((kept, more));
                    plimsoll::free_os_memory();
                    compare();
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

/// Where hooks would change how jemalloc works, Plimsoll installs none.
#[test]
fn pages_are_absent_if_jemalloc_has_other_hooks() {
    const NAME: &str = "pages_are_absent_if_jemalloc_has_other_hooks";
    const SETTINGS: &str = "_RJEM_MALLOC_CONF";
    if let Some(settings) = std::env::var_os(SETTINGS) {
        drop(work(3));
        plimsoll::free_os_memory();
        let stats = mem_stats();
        relations::assert_relations(&stats);
        let is_reported = stats.pages != Pages::ABSENT;
        assert_eq!(is_reported, settings == "narenas:3", "{settings:?}");
        if is_reported {
            compare();
        } else {
            assert_eq!(stats.heap_sys, stats.heap_alloc);
        }
        return;
    }
    for settings in [
        "narenas:3",
        "retain:false",
        "percpu_arena:percpu",
        "thp:always",
        "hpa:true",
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&*plimsoll_testkit::child::full_name(NAME), "--exact"])
            .env(SETTINGS, settings)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{settings}: {said}"
        );
    }
}

#[test]
fn relations_hold_in_every_reading_under_load() {
    tested("relations_hold_in_every_reading_under_load", || {
        let (readings, with_slack) = pages::read_under_load(5000, 10);
        assert!(
            with_slack * 100 <= readings,
            "{with_slack} of {readings} readings with slack"
        );
        eprintln!("{with_slack} of {readings} readings with slack");
        compare();
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
        pages::blocks_have_the_requested_size_and_alignment(&Jemalloc);
        pages::blocks_have_the_requested_size_and_alignment(&ALLOC);
        assert_eq!(mem_stats().heap_slack, 0);
    });
}
