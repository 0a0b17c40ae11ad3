//! The soft memory limit: a crossed threshold calls its callback once, on Plimsoll's thread, after
//! memory was returned.

use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Format};
use plimsoll::stats::Account;
use plimsoll::{
    MemoryLimit, MemoryPressure, MemoryThreshold, gc, mem_stats, on_memory_threshold,
    set_memory_limit,
};

const MIB: usize = 1 << 20;

/// Waits for a condition that another thread makes true.
#[track_caller]
fn wait_until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the condition did not occur"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The pressures that callbacks received, in order.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<MemoryPressure>>>);

impl Received {
    fn at(&self, percent: u32) -> MemoryThreshold {
        let received = self.clone();
        on_memory_threshold(percent, move |pressure| {
            received.0.lock().unwrap().push(*pressure);
        })
    }

    fn percents(&self) -> Vec<u32> {
        let received = self.0.lock().unwrap();
        received.iter().map(|pressure| pressure.percent).collect()
    }
}

/// Grows or shrinks `blocks` to `mib` blocks of one MiB.
fn grow(blocks: &mut Vec<Vec<u8>>, mib: usize) {
    blocks.resize_with(mib, || vec![1; MIB]);
}

/// Waits until the thread has made a check that began after this call. A threshold of 0 % is
/// reported at the next check.
fn looked() {
    for _ in 0..2 {
        let received = Received::default();
        let _threshold = received.at(0);
        wait_until(|| received.percents() == [0]);
    }
}

fn crossings() {
    let received = Received::default();
    let _thresholds = [received.at(80), received.at(50), received.at(100)];
    set_memory_limit(MemoryLimit::Bytes(100 << 20)).unwrap();
    assert_eq!(gc::memory_limit(), 100 << 20);
    let mut blocks = Vec::new();
    grow(&mut blocks, 70);
    looked();
    assert_eq!(received.percents(), [50]);
    let pressure = received.0.lock().unwrap()[0];
    assert_eq!(pressure.limit, 100 << 20);
    let used = pressure.used;
    // Includes the memory that Plimsoll itself uses.
    assert!((50 * MIB as u64..80 * MIB as u64).contains(&used), "{used}");
    // Changes within the slack do not cross the threshold again.
    for mib in [47, 70, 48, 70] {
        grow(&mut blocks, mib);
        looked();
    }
    assert_eq!(received.percents(), [50]);
    grow(&mut blocks, 130);
    looked();
    assert_eq!(received.percents(), [50, 80, 100]);
    // Use must fall clearly below a threshold before it can be crossed again.
    grow(&mut blocks, 76);
    looked();
    grow(&mut blocks, 88);
    looked();
    assert_eq!(received.percents(), [50, 80, 100]);
    grow(&mut blocks, 20);
    // Plimsoll purges the C library's free memory until the thresholds can be crossed again, and no
    // further.
    wait_until(|| anonymous() < 45 * MIB);
    looked();
    grow(&mut blocks, 90);
    looked();
    assert_eq!(received.percents(), [50, 80, 100, 50, 80]);
    // No limit, no callbacks.
    let before = set_memory_limit(MemoryLimit::Off).unwrap();
    assert_eq!(before, Some(100 << 20));
    assert_eq!(gc::memory_limit(), i64::MAX as u64);
    grow(&mut blocks, 140);
    // With another limit the thread checks again: what it had reported without one would have come before.
    set_memory_limit(MemoryLimit::Bytes(4 << 30)).unwrap();
    looked();
    assert_eq!(received.percents().len(), 5);
}

#[test]
fn each_crossing_is_reported_once() {
    child::run("each_crossing_is_reported_once", "", crossings);
}

fn callbacks_are_calm() {
    static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let thresholds: Vec<MemoryThreshold> = (1..=20)
        .map(|percent| {
            on_memory_threshold(percent, move |_| {
                assert_eq!(AT_ONCE.fetch_add(1, Ordering::SeqCst), 0);
                let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
                assert_eq!(thread, "plimsoll-limit\n");
                // Memory that callbacks allocate counts as the program's.
                let before = plimsoll::heap_stats().large.mallocs;
                let block = vec![1u8; 5 * MIB];
                assert!(plimsoll::heap_stats().large.mallocs > before);
                drop(block);
                AT_ONCE.fetch_sub(1, Ordering::SeqCst);
                CALLS.fetch_add(1, Ordering::SeqCst);
                assert!(percent != 7, "a panic requested by the test");
            })
        })
        .collect();
    set_memory_limit(MemoryLimit::Bytes(200 << 20)).unwrap();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut blocks = Vec::new();
                while !enough.load(Ordering::Relaxed) {
                    grow(&mut blocks, 20);
                    blocks.clear();
                    std::thread::yield_now();
                }
            });
        }
        let mut kept = Vec::new();
        grow(&mut kept, 50);
        wait_until(|| CALLS.load(Ordering::SeqCst) >= 20);
        enough.store(true, Ordering::Relaxed);
    });
    drop(thresholds);
}

#[test]
fn callbacks_come_one_at_a_time_and_never_in_an_allocation() {
    child::run(
        "callbacks_come_one_at_a_time_and_never_in_an_allocation",
        "",
        callbacks_are_calm,
    );
}

/// Returns the field at `place` of `/proc/self/statm`, in bytes.
fn figure(place: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(place).unwrap().parse().unwrap();
    pages * 4096
}

fn address_space() -> usize {
    figure(0)
}

fn resident() -> usize {
    figure(1)
}

/// Returns the resident bytes that no file backs.
fn anonymous() -> usize {
    resident() - figure(2)
}

static POOL: Account = Account::new("pool");

fn purged_first() {
    // A heap with holes: the blocks that stay are spread all over it. They keep the C library from
    // returning the rest, which a single block at the end did not always do.
    let kept = holes(64 << 10, 1000, 64);
    let before = resident();
    assert!(before > 60 * MIB, "{before}");
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let _threshold = on_memory_threshold(50, |_| SEEN.store(resident(), Ordering::SeqCst));
    set_memory_limit(MemoryLimit::Bytes(1 << 30)).unwrap();
    // Memory that accounts have committed counts, whether touched or not.
    POOL.commit(600 << 20);
    wait_until(|| SEEN.load(Ordering::SeqCst) > 0);
    let seen = SEEN.load(Ordering::SeqCst);
    assert!(seen + 40 * MIB < before, "{before}, then {seen}");
    drop(kept);
}

#[test]
fn memory_is_returned_before_any_callback() {
    child::run("memory_is_returned_before_any_callback", "", purged_first);
}

/// Allocates `blocks` blocks of `size` bytes and keeps one in `kept`. The rest are holes between
/// them.
fn holes(blocks: usize, size: usize, kept: usize) -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = (0..blocks).map(|_| vec![1; size]).collect();
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % kept == 0
    });
    blocks
}

/// Memory that the C library holds between blocks can be returned where it spans whole pages.
fn holes_of_pages() {
    let received = Received::default();
    let _threshold = received.at(60);
    let kept = holes(120 * 64, MIB / 64, 8);
    let before = resident();
    assert!(before > 110 * MIB, "{before}");
    assert!(plimsoll::heap_stats().live_bytes() < 30 << 20);
    set_memory_limit(MemoryLimit::Bytes(160 << 20)).unwrap();
    wait_until(|| resident() < 60 * MIB);
    looked();
    assert!(received.percents().is_empty());
    drop(kept);
}

#[test]
fn unreported_memory_of_an_allocator_is_returned_before_the_limit() {
    child::run(
        "unreported_memory_of_an_allocator_is_returned_before_the_limit",
        "",
        holes_of_pages,
    );
}

/// Holes smaller than a page cannot be returned: each page still holds part of a block.
fn holes_in_pages() {
    let received = Received::default();
    let _thresholds = [received.at(60), received.at(95)];
    let mut kept = holes(120 << 10, 1000, 4);
    assert!(plimsoll::heap_stats().live_bytes() < 50 << 20);
    set_memory_limit(MemoryLimit::Bytes(160 << 20)).unwrap();
    wait_until(|| received.percents() == [60]);
    let used = received.0.lock().unwrap()[0].used;
    assert!(
        (110 * MIB as u64..150 * MIB as u64).contains(&used),
        "{used}"
    );
    // Once the holes span whole pages, Plimsoll returns them, until the threshold can be crossed
    // again. The last block keeps the C library from returning them itself.
    let last = kept.pop();
    drop(kept);
    wait_until(|| anonymous() < 88 * MIB);
    // Plimsoll returned only as much as the limit requires; this call returns the rest.
    plimsoll::free_os_memory();
    looked();
    let kept = holes(120 << 10, 1000, 4);
    wait_until(|| received.percents() == [60, 60]);
    drop((kept, last));
}

#[test]
fn resident_memory_outside_blocks_counts() {
    child::run("resident_memory_outside_blocks_counts", "", holes_in_pages);
}

/// Memory that the program maps appears only in the kernel's figures.
fn mapped_by_the_program() {
    let received = Received::default();
    let _threshold = received.at(60);
    set_memory_limit(MemoryLimit::Bytes(160 << 20)).unwrap();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, which is written to within its length.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), 110 * MIB, access, flags, -1, 0) };
    assert_ne!(memory, libc::MAP_FAILED);
    looked();
    assert!(received.percents().is_empty(), "not touched");
    // SAFETY: writes within the mapping made above.
    unsafe { memory.cast::<u8>().write_bytes(1, 110 * MIB) };
    wait_until(|| received.percents() == [60]);
    // SAFETY: mapped above, and used no more.
    unsafe { libc::munmap(memory, 110 * MIB) };
}

#[test]
fn mappings_of_the_program_count_once_touched() {
    child::run(
        "mappings_of_the_program_count_once_touched",
        "",
        mapped_by_the_program,
    );
}

fn within_address_space() {
    let bytes = address_space() as u64 + (1 << 30);
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: `limit` is initialized, and it applies to this process only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    static CACHE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    static CLEARED: AtomicUsize = AtomicUsize::new(0);
    set_memory_limit(MemoryLimit::Bytes(400 << 20)).unwrap();
    let _shrinks = on_memory_threshold(60, |_| {
        CACHE.lock().unwrap().clear();
        CLEARED.fetch_add(1, Ordering::SeqCst);
    });
    // Twice as much as fits into the address space, as fast as the thread can follow.
    for _ in 0..2000 {
        CACHE.lock().unwrap().push(vec![1; MIB]);
        wait_until(|| CACHE.lock().unwrap().len() < 600);
    }
    assert!(CLEARED.load(Ordering::SeqCst) >= 2);
}

#[test]
fn a_program_that_grows_lives_on_within_a_limit() {
    child::run(
        "a_program_that_grows_lives_on_within_a_limit",
        "",
        within_address_space,
    );
}

/// As in Go's test, a thread replaces its blocks without pause, up to 70 % of the limit. In all readings, both figures of
/// the limit are at most 16 MiB above it.
fn churn_below_the_limit() {
    const LIMIT: usize = 256 * MIB;
    const BOUND: usize = LIMIT + 16 * MIB;
    const BLOCK: usize = 8000;
    const ROUNDS: usize = 3;
    set_memory_limit(MemoryLimit::Bytes(LIMIT as u64)).unwrap();
    let (wanted, rounds) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Until(&over);
        scope.spawn(|| {
            let mut blocks: Vec<Vec<u8>> = Vec::new();
            while !over.load(Ordering::Relaxed) {
                blocks.resize_with(wanted.load(Ordering::Relaxed), Vec::new);
                for block in &mut blocks {
                    *block = vec![9; BLOCK];
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        for tenths in 1..8 {
            wanted.store(LIMIT / 10 * tenths / BLOCK, Ordering::Relaxed);
            let end = rounds.load(Ordering::Relaxed) + ROUNDS;
            while rounds.load(Ordering::Relaxed) < end {
                let stats = mem_stats();
                let retained = stats.sys - stats.heap_released;
                assert!(retained <= BOUND as u64, "{retained} at {tenths} tenths");
                let resident = anonymous();
                assert!(resident <= BOUND, "{resident} at {tenths} tenths");
            }
        }
    });
}

#[test]
fn memory_stays_within_the_limit_while_blocks_churn() {
    child::run(
        "memory_stays_within_the_limit_while_blocks_churn",
        "",
        churn_below_the_limit,
    );
}

fn from_inside() {
    static HELD: Mutex<Option<MemoryThreshold>> = Mutex::new(None);
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let threshold = on_memory_threshold(10, |_| {
        // Drops its own threshold, registers another, and changes the limit.
        drop(HELD.lock().unwrap().take());
        if CALLS.fetch_add(1, Ordering::SeqCst) == 0 {
            let next = on_memory_threshold(20, |_| {
                set_memory_limit(MemoryLimit::Off).unwrap();
                CALLS.fetch_add(1, Ordering::SeqCst);
            });
            *HELD.lock().unwrap() = Some(next);
            set_memory_limit(MemoryLimit::Bytes(90 << 20)).unwrap();
        }
    });
    *HELD.lock().unwrap() = Some(threshold);
    set_memory_limit(MemoryLimit::Bytes(100 << 20)).unwrap();
    let mut blocks = Vec::new();
    grow(&mut blocks, 30);
    wait_until(|| CALLS.load(Ordering::SeqCst) == 2);
    assert_eq!(set_memory_limit(MemoryLimit::Off).unwrap(), None);
}

#[test]
fn a_callback_may_change_all_of_it() {
    child::run("a_callback_may_change_all_of_it", "", from_inside);
}

fn in_a_child() {
    let received = Received::default();
    let _threshold = received.at(50);
    set_memory_limit(MemoryLimit::Bytes(100 << 20)).unwrap();
    // SAFETY: the child allocates, starts a thread and exits, which glibc permits after `fork`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        plimsoll_testkit::child::kill_after_a_minute();
        set_memory_limit(MemoryLimit::Bytes(100 << 20)).unwrap();
        let mut blocks = Vec::new();
        grow(&mut blocks, 60);
        wait_until(|| received.percents() == [50]);
        // SAFETY: ends the child without running exit handlers of the parent.
        unsafe { libc::_exit(0) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0);
    assert!(received.percents().is_empty());
    let mut blocks = Vec::new();
    grow(&mut blocks, 60);
    wait_until(|| received.percents() == [50]);
}

#[test]
fn a_forks_child_has_a_limit_of_its_own() {
    child::run("a_forks_child_has_a_limit_of_its_own", "", in_a_child);
}

#[test]
fn a_setting_sets_the_limit() {
    child::run("a_setting_sets_the_limit", "memory_limit=123m", || {
        let _plimsoll = plimsoll::config()
            .memory_limit(MemoryLimit::Bytes(7 << 20))
            .start();
        assert_eq!(gc::memory_limit(), 123 << 20);
        let before = set_memory_limit(MemoryLimit::Percent(10)).unwrap();
        assert_eq!(before, Some(123 << 20));
    });
}

// The guide about pushes shows this function.
/// Keeps a heap profile for each threshold, the last one, and gives its path to a command.
fn keep_profiles(directory: PathBuf, command: &'static str) -> [MemoryThreshold; 2] {
    [70, 85].map(|percent| {
        let path = directory.join(format!("heap-at-{percent}.pb.gz"));
        on_memory_threshold(percent, move |_pressure| {
            let heap = profile::lookup("heap").expect("built in");
            let written = heap.write_to_file(&path, Format::Pprof);
            let ran = written.and_then(|()| Command::new(command).arg(&path).status());
            if let Err(error) = ran {
                eprintln!("cannot keep {}: {error}", path.display());
            }
        })
    })
}

/// `gunzip` replaces the file by the uncompressed profile.
#[test]
fn a_threshold_writes_a_profile_and_runs_a_command() {
    child::run(
        "a_threshold_writes_a_profile_and_runs_a_command",
        "",
        || {
            let directory =
                std::env::temp_dir().join(format!("plimsoll-kept-{}", std::process::id()));
            std::fs::create_dir_all(&directory).unwrap();
            let thresholds = keep_profiles(directory.clone(), "gunzip");
            set_memory_limit(MemoryLimit::Bytes(100 << 20)).unwrap();
            let mut blocks = Vec::new();
            grow(&mut blocks, 78);
            let names = || -> Vec<String> {
                let entries = std::fs::read_dir(&directory).unwrap();
                let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
                names.collect()
            };
            wait_until(|| names() == ["heap-at-70.pb"]);
            let profile = std::fs::read(directory.join("heap-at-70.pb")).unwrap();
            let types = b"alloc_objects";
            let has_types = profile.windows(types.len()).any(|window| window == types);
            assert!(has_types, "a profile of {} bytes", profile.len());
            drop((thresholds, blocks));
            std::fs::remove_dir_all(&directory).unwrap();
        },
    );
}
