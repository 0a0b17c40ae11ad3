//! Events around the program's own work: forks, exits, signals, threads that are ending, and
//! libraries that come and go.

#[path = "late_libraries/mod.rs"]
mod late_libraries;
#[path = "start_cost/mod.rs"]
mod start_cost;

use plimsoll_testkit::child::{self, Deadline};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::profile::{self, Detail, Format};
use plimsoll::{heap_stats, size_class};

/// Allocates and frees in `threads` threads until the guard is dropped.
struct Noise {
    stop: &'static AtomicBool,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Noise {
    fn make(threads: u64) -> Self {
        let stop: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let work = move |seed: u64| {
            let mut random = seed + 1;
            let mut kept: Vec<Vec<u8>> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                kept.push(Vec::with_capacity((random >> 40) as usize % 3000 + 1));
                if kept.len() > 50 {
                    kept.swap_remove((random >> 20) as usize % 50);
                }
            }
        };
        Self {
            stop,
            threads: (0..threads)
                .map(|seed| std::thread::spawn(move || work(seed)))
                .collect(),
        }
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("the load continues until the end");
        }
    }
}

fn write_profile() -> Vec<u8> {
    let mut bytes = Vec::new();
    let heap = profile::lookup("heap").expect("built in");
    heap.write_with(&mut bytes, Format::Pprof, Detail::Names)
        .expect("memory can be written to");
    assert_eq!(bytes[..2], [0x1f, 0x8b], "gzip");
    bytes
}

fn balanced() {
    let stats = heap_stats();
    assert!(
        stats.exact
            && stats
                .by_class
                .iter()
                .all(|class| class.frees <= class.mallocs)
    );
}

/// Forks at arbitrary moments. Each child allocates, reads statistics and writes a profile.
fn fork_again_and_again() {
    let _noise = Noise::make(3);
    let readers = Noise::make(0);
    let stop = readers.stop;
    let reading = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            balanced();
            black_box(write_profile());
        }
    });
    for round in 0..60 {
        // SAFETY: the calls that the child makes are the subject of the test.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            let before = heap_stats();
            let kept: Vec<Vec<u8>> = (0..2000).map(|size| vec![1; size % 500 + 1]).collect();
            balanced();
            let during = heap_stats();
            let right = during.mallocs - before.mallocs >= 2000 && !write_profile().is_empty();
            drop(kept);
            let thread = std::thread::spawn(|| {
                (0..100)
                    .map(|size| vec![0u8; size])
                    .collect::<Vec<_>>()
                    .len()
            });
            let right = right && thread.join().is_ok_and(|kept| kept == 100);
            balanced();
            // SAFETY: ends the child without running exit handlers of the parent.
            unsafe { libc::_exit(if right { 0 } else { 7 }) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0, "the child of round {round}");
        balanced();
    }
    drop(readers);
    reading.join().unwrap();
}

/// A child drops the guard that its parent started, whose threads it does not have. It can then
/// start Plimsoll again.
fn fork_with_a_server() {
    let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
    assert!(plimsoll.http_address().is_some());
    // SAFETY: the calls that the child makes are the subject of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        plimsoll_testkit::child::kill_after_a_minute();
        drop(plimsoll);
        let again = plimsoll::config().http("127.0.0.1:0").start();
        let address = again.http_address().expect("the port is known");
        let answers = std::net::TcpStream::connect(address).is_ok();
        drop(again);
        // SAFETY: ends the child without running exit handlers of the test.
        unsafe { libc::_exit(if answers { 0 } else { 7 }) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0);
}

#[test]
fn a_forks_child_can_drop_and_set_off() {
    child::run("a_forks_child_can_drop_and_set_off", "", fork_with_a_server);
}

#[test]
fn forks_with_per_cpu_shards() {
    child::run(
        "forks_with_per_cpu_shards",
        "heap_rate=2k",
        fork_again_and_again,
    );
}

#[test]
fn forks_with_per_thread_shards() {
    child::run(
        "forks_with_per_thread_shards",
        "ledger=per-thread,heap_rate=2k",
        fork_again_and_again,
    );
}

/// The number of forks that [`fork_in_a_handler`] has made.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// When the process ends, unless it forks meanwhile.
static DEADLINE: OnceLock<Deadline> = OnceLock::new();

/// Forks. The child reads statistics, as the handler of a program that reports its end would.
extern "C" fn fork_in_a_handler(_: i32) {
    // SAFETY: the interrupted code is Plimsoll's, so it is not in the C library's allocator.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            libc::_exit(if heap_stats().exact { 0 } else { 7 });
        }
        let status = plimsoll_testkit::child::wait(child);
        FORKS.fetch_add(u64::from(status == 0), Ordering::Relaxed);
        // On a busy machine, a minute may be too short for all forks.
        if let Some(deadline) = DEADLINE.get() {
            deadline.renew();
        }
    }
}

/// Lets a timer interrupt a thread that reads, until the handler has forked often.
fn read_while_a_handler_forks() {
    let _ = DEADLINE.set(plimsoll_testkit::child::kill_after_a_minute());
    let heap = profile::lookup("heap").expect("built in");
    let mut bytes = Vec::with_capacity(1 << 22);
    let mut write = || {
        bytes.clear();
        heap.write_with(&mut bytes, Format::Pprof, Detail::Addresses)
            .expect("memory can be written to");
        assert!(bytes.capacity() == 1 << 22, "the program allocates nothing");
    };
    write();
    let every = |microseconds| {
        let time = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: time,
            it_value: time,
        };
        // SAFETY: `timer` is valid for the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    };
    // SAFETY: see the handler.
    unsafe { libc::signal(libc::SIGALRM, fork_in_a_handler as *const () as usize) };
    every(300);
    while FORKS.load(Ordering::Relaxed) < 300 {
        for _ in 0..100 {
            black_box(heap_stats());
        }
        write();
    }
    every(0);
    balanced();
}

#[test]
fn a_signal_handler_forks_while_its_thread_reads() {
    child::run(
        "a_signal_handler_forks_while_its_thread_reads",
        "",
        read_while_a_handler_forks,
    );
}

unsafe extern "C" {
    fn vfork() -> libc::pid_t;
}

/// The size of the blocks that [`count_in_vfork_children`] allocates, of which the test harness has none.
const OF_CHILDREN: usize = 3000;

fn allocate_for_a_while(blocks: usize) {
    for _ in 0..blocks {
        drop(black_box(Vec::<u8>::with_capacity(OF_CHILDREN)));
    }
}

/// Makes a child by `vfork` that allocates that many blocks.
#[inline(never)]
fn allocate_in_a_child(blocks: usize) {
    // SAFETY: the child allocates, which this library allows, and ends. It does not return from this function.
    let child = unsafe { vfork() };
    if child == 0 {
        allocate_for_a_while(blocks);
        // SAFETY: has no preconditions.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "vfork: {}", std::io::Error::last_os_error());
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0);
}

/// Compares the count of blocks with the number of them, which other threads allocate as well.
fn count_in_vfork_children() {
    const ROUNDS: usize = 60;
    const BLOCKS: usize = 20_000;
    let class = size_class::of(OF_CHILDREN).expect("a small size");
    let mallocs = || {
        let stats = heap_stats();
        assert!(stats.exact);
        stats.by_class[class].mallocs
    };
    let before = mallocs();
    let stop = AtomicBool::new(false);
    let others = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    allocate_for_a_while(1000);
                    others.fetch_add(1000, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                black_box(heap_stats());
            }
        });
        for _ in 0..ROUNDS {
            allocate_in_a_child(BLOCKS);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let expected = (ROUNDS * BLOCKS) as u64 + others.load(Ordering::Relaxed);
    assert_eq!(mallocs() - before, expected);
    // The parent has its own counters again.
    allocate_for_a_while(1000);
    assert_eq!(mallocs() - before, expected + 1000);
}

#[test]
fn no_count_of_a_vfork_child_is_lost() {
    child::run(
        "no_count_of_a_vfork_child_is_lost",
        "",
        count_in_vfork_children,
    );
}

/// A program that exits while it is being read. With the variable set, this test is that program.
#[test]
fn exits_while_snapshots_run() {
    const MARK: &str = "PLIMSOLL_TEST_EXITS";
    if std::env::var_os(MARK).is_some() {
        for _ in 0..2 {
            std::thread::spawn(|| {
                loop {
                    balanced();
                    black_box(write_profile());
                }
            });
        }
        // Waits long enough for the threads to be in the middle of a reading.
        let mut work = 0u64;
        for turn in 0..300_000u64 {
            work ^= black_box(turn);
        }
        std::process::exit(i32::from(work == 1));
    }
    for _ in 0..20 {
        let status = Command::new(std::env::current_exe().unwrap())
            .args([
                &*plimsoll_testkit::child::full_name("exits_while_snapshots_run"),
                "--exact",
                "--nocapture",
            ])
            .env(MARK, "1")
            .env("PLIMSOLL", "heap_rate=4k")
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

const IN_HANDLER: Layout = match Layout::from_size_align(941, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a valid layout"),
};

/// Captures a stack, through the allocator hook. Every allocation is sampled, so this one does not
/// reach the C library's allocator, which a handler must not call.
extern "C" fn handler(_: libc::c_int) {
    // SAFETY: a valid layout; the block is freed with the same layout.
    unsafe {
        let block = crate::ALLOC.alloc(IN_HANDLER);
        block.write_bytes(7, IN_HANDLER.size());
        crate::ALLOC.dealloc(block, IN_HANDLER);
    }
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Sends a thousand signals a second. Each captures a stack on top of the code that it interrupts.
fn storm() {
    let class = size_class::of(IN_HANDLER.size()).unwrap();
    // SAFETY: the handler makes only calls that handlers may make; the timer is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let set_timer = |microseconds| {
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: a valid timer.
        let status =
            unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
        assert_eq!(status, 0);
    };
    let noise = Noise::make(2);
    set_timer(1000);
    while SIGNALS.load(Ordering::Relaxed) < 1000 {
        let block = black_box(vec![1u8; 100]);
        drop(block);
    }
    set_timer(0);
    drop(noise);
    let stats = heap_stats();
    let counts = stats.by_class[class];
    let signals = SIGNALS.load(Ordering::Relaxed);
    assert!(
        counts.mallocs >= signals,
        "{counts:?} after {signals} signals"
    );
    assert!(!write_profile().is_empty());
    assert_eq!(profile::lost_events().untracked, 0);
}

#[test]
fn signals_that_capture_stacks() {
    child::run(
        "signals_that_capture_stacks",
        "heap_rate=1,unwinder=tables",
        storm,
    );
}

#[test]
fn signals_that_capture_stacks_by_frame_pointers() {
    let settings = "heap_rate=1,unwinder=frame-pointers,ledger=per-thread";
    child::run(
        "signals_that_capture_stacks_by_frame_pointers",
        settings,
        storm,
    );
}

/// Allocates when its thread ends, also after other destructors have run, and frees earlier blocks.
struct Last(Vec<Vec<u8>>);

impl Drop for Last {
    fn drop(&mut self) {
        let more: Vec<Vec<u8>> = (0..10).map(|_| Vec::with_capacity(949)).collect();
        self.0.truncate(5);
        drop(more);
    }
}

thread_local! {
    static FIRST: std::cell::RefCell<Last> = const { std::cell::RefCell::new(Last(Vec::new())) };
}

extern "C" fn key_destructor(value: *mut libc::c_void) {
    let layout = Layout::from_size_align(949, 8).unwrap();
    // SAFETY: the value is a block of this layout.
    unsafe {
        crate::ALLOC.dealloc(value.cast(), layout);
        let another = crate::ALLOC.alloc(layout);
        crate::ALLOC.dealloc(another, layout);
    }
}

fn last_moments() {
    let layout = Layout::from_size_align(949, 8).unwrap();
    let class = size_class::of(949).unwrap();
    let mut key = 0;
    // SAFETY: makes a key whose destructor has the right signature.
    let status = unsafe { libc::pthread_key_create(&raw mut key, Some(key_destructor)) };
    assert_eq!(status, 0);
    let before = heap_stats().by_class[class];
    for _ in 0..200 {
        std::thread::spawn(move || {
            FIRST.with_borrow_mut(|first| {
                first.0 = (0..7).map(|_| Vec::with_capacity(949)).collect()
            });
            // SAFETY: a valid layout and a key that exists.
            unsafe { libc::pthread_setspecific(key, crate::ALLOC.alloc(layout).cast()) };
        })
        .join()
        .unwrap();
    }
    let after = heap_stats().by_class[class];
    let each = 7 + 10 + 1 + 1;
    assert_eq!(after.mallocs - before.mallocs, 200 * each);
    assert_eq!(after.frees - before.frees, 200 * each);
}

#[test]
fn last_moments_of_threads_are_counted() {
    for settings in [
        "ledger=per-cpu",
        "ledger=per-thread",
        "ledger=fenced",
        "heap_rate=1",
    ] {
        child::run(
            "last_moments_of_threads_are_counted",
            settings,
            last_moments,
        );
    }
}

const PLUGIN: &str = "
void NAME(void (*callback)(void)) { volatile int here = 1; callback(); here = 2; }
int NAME_padding[PADDING];
";

/// Builds a library with one function, which calls its argument.
fn build_plugin(dir: &std::path::Path, name: &str, padding: usize) -> std::ffi::CString {
    let source = dir.join(format!("{name}.c"));
    let library = dir.join(format!("lib{name}.so"));
    let text = PLUGIN
        .replace("NAME", name)
        .replace("PADDING", &padding.to_string());
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(
        built
            .expect("a C compiler, which Rust needs to link")
            .success()
    );
    std::ffi::CString::new(library.into_os_string().into_encoded_bytes()).unwrap()
}

extern "C" fn allocate_in_callback() {
    drop(black_box(vec![1u8; 333]));
}

/// Loads and unloads libraries while their frames are on the stacks of sampled threads.
fn libraries_come_and_go() {
    let dir = std::env::temp_dir().join(format!("plimsoll-plugins-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let plugins = [("one", 10), ("another", 100_000)].map(|(name, padding)| {
        (
            std::ffi::CString::new(name).unwrap(),
            build_plugin(&dir, name, padding),
        )
    });
    let _plimsoll = plimsoll::start();
    let _noise = Noise::make(1);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let plugins = &plugins;
            scope.spawn(move || {
                for round in 0..400 {
                    let (name, path) = &plugins[(round + thread) % 2];
                    // SAFETY: the library and the function are those just built; nothing of the
                    // library is used after it is closed.
                    unsafe {
                        let library =
                            libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
                        assert!(!library.is_null());
                        let call = libc::dlsym(library, name.as_ptr());
                        let call: extern "C" fn(extern "C" fn()) = std::mem::transmute(call);
                        for _ in 0..5 {
                            call(allocate_in_callback);
                        }
                        libc::dlclose(library);
                    }
                }
            });
        }
        for _ in 0..20 {
            black_box(write_profile());
        }
    });
    balanced();
    assert_eq!(profile::lost_events().cut_stacks, 0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn libraries_that_come_and_go_while_sampling() {
    child::run(
        "libraries_that_come_and_go_while_sampling",
        "heap_rate=1,unwinder=tables",
        libraries_come_and_go,
    );
}

/// A stack walk passes the frames of a library that was loaded late, once the module list is
/// refreshed.
fn stacks_through_a_late_library() {
    let dir = std::env::temp_dir().join(format!("plimsoll-late-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = build_plugin(&dir, "late", 10);
    // SAFETY: the library and the function are those just built; the library is never closed.
    let call: extern "C" fn(extern "C" fn()) = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        std::mem::transmute(libc::dlsym(library, c"late".as_ptr()))
    };
    // Refreshes the module list.
    write_profile();
    call(allocate_in_callback);
    let mut text = Vec::new();
    profile::lookup("allocs")
        .unwrap()
        .write_to(&mut text, Format::Text)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    let record = text
        .split("\n\n")
        .find(|record| record.contains("allocate_in_callback"))
        .expect("it is sampled");
    let frames: Vec<_> = record
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    let at = |name: &str| {
        frames
            .iter()
            .position(|line| line.contains(name))
            .unwrap_or_else(|| panic!("{name} in {record}"))
    };
    assert!(at("allocate_in_callback") < at("late"), "{record}");
    assert!(
        at("late+") < at("stacks_through_a_late_library"),
        "{record}"
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn stacks_go_through_libraries_that_were_loaded_late() {
    let settings = "heap_rate=1,unwinder=tables";
    child::run(
        "stacks_go_through_libraries_that_were_loaded_late",
        settings,
        stacks_through_a_late_library,
    );
}

/// Makes the pages of the program's static data read-only while threads allocate and free: the fast
/// path writes no memory that threads share.
fn static_data_is_not_written() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let program = std::env::current_exe().unwrap();
    let mut ranges = Vec::new();
    let mut lines = maps.lines().peekable();
    while let Some(line) = lines.next() {
        let mut fields = line.split_whitespace();
        let (range, access) = (fields.next().unwrap(), fields.next().unwrap());
        if line.ends_with(program.to_str().unwrap()) && access.starts_with("rw") {
            ranges.push(range.to_owned());
            // The zeroed part follows as a mapping without a name.
            if let Some(next) = lines
                .peek()
                .filter(|next| next.split_whitespace().count() == 5 && next.contains("rw-p"))
            {
                ranges.push(next.split_whitespace().next().unwrap().to_owned());
            }
        }
    }
    assert!(!ranges.is_empty(), "{maps}");
    let protect = |access| {
        for range in &ranges {
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] =
                [start, end].map(|address| usize::from_str_radix(address, 16).unwrap());
            // SAFETY: a write to these pages meanwhile ends the test, as intended.
            let status = unsafe { libc::mprotect(start as *mut _, end - start, access) };
            assert_eq!(status, 0);
        }
    };
    let go = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let operations = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (go, done) = (&go, &done);
                scope.spawn(move || {
                    // Sets the thread up, and resolves all functions that are bound lazily.
                    let mut operations = 0u64;
                    let mut round = || {
                        for size in (1..9000).step_by(17) {
                            let mut block: Vec<u8> = Vec::with_capacity(size);
                            block.reserve_exact(size + 100);
                            black_box(&block);
                            operations += 3;
                        }
                    };
                    round();
                    go.fetch_add(1, Ordering::SeqCst);
                    while go.load(Ordering::SeqCst) < 3 {
                        std::hint::spin_loop();
                    }
                    (0..200).for_each(|_| round());
                    done.fetch_add(1, Ordering::SeqCst);
                    while go.load(Ordering::SeqCst) < 4 {
                        std::hint::spin_loop();
                    }
                    operations
                })
            })
            .collect();
        while go.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
        protect(libc::PROT_READ);
        go.store(3, Ordering::SeqCst);
        while done.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
        protect(libc::PROT_READ | libc::PROT_WRITE);
        go.store(4, Ordering::SeqCst);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<u64>()
    });
    assert!(operations > 100_000, "{operations}");
}

#[test]
fn the_common_path_writes_nothing_that_threads_share() {
    for settings in [
        "heap_rate=0,ledger=per-cpu",
        "heap_rate=0,ledger=per-thread",
    ] {
        child::run(
            "the_common_path_writes_nothing_that_threads_share",
            settings,
            static_data_is_not_written,
        );
    }
}

/// Passes blocks of one size between two threads, at the highest sampling rate. A block that
/// replaces a sampled one must not inherit its sample, and no sample is lost.
fn one_size_between_two_threads() {
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Vec<Box<[u8; 611]>>>(4);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok(blocks) = receiver.recv_timeout(Duration::from_secs(30)) {
                drop(blocks);
            }
        });
        for _ in 0..2000 {
            sender
                .send((0..50).map(|_| Box::new([1; 611])).collect())
                .unwrap();
        }
        drop(sender);
    });
    let class = heap_stats().by_class[size_class::of(611).unwrap()];
    assert_eq!((class.mallocs, class.frees), (100_000, 100_000));
    let mut text = Vec::new();
    profile::lookup("heap")
        .unwrap()
        .write_with(&mut text, Format::Text, Detail::Addresses)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    // inuse objects: bytes [allocated objects: bytes] @ ...
    let rows = text.lines().filter(|line| line.contains("] @ 0x"));
    let mut allocated = 0u64;
    for row in rows {
        let numbers: Vec<u64> = row
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .take(4)
            .collect();
        let [in_use, bytes, objects, _] = numbers[..] else {
            panic!("{row}")
        };
        assert!(in_use <= objects, "{row}");
        if objects > 1000 && (bytes == 0 || bytes / in_use.max(1) == 616) {
            allocated += objects;
            assert_eq!(in_use, 0, "{row}");
        }
    }
    // About a tenth is sampled: 616 bytes at a rate of 6 KiB.
    let share = allocated as f64 / 100_000.0;
    assert!((share - 0.0945).abs() < 0.01, "{share}\n{text}");
}

#[test]
fn no_block_inherits_a_sample() {
    child::run(
        "no_block_inherits_a_sample",
        "heap_rate=6k",
        one_size_between_two_threads,
    );
}
