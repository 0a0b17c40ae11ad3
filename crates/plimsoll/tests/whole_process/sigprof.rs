//! Another CPU profiler next to Plimsoll's. SIGPROF at 999 Hz interrupts threads that allocate, wait,
//! load and unload libraries, fork, execute, begin and end. Meanwhile Plimsoll takes CPU samples at
//! 1000 Hz, one allocation in 4 KiB is sampled, every wait is recorded, and a client reads all pages.
//! Handlers unwind the stack at any instruction, also inside Plimsoll's hooks. A watchdog aborts the
//! process if a thread stops.
//!
//! Each test runs for two seconds; for ten minutes with
//! `PLIMSOLL_SOAK_SECONDS=600 cargo test --release --test whole_process -- sigprof`.
#![cfg(all(feature = "interpose", target_os = "linux", target_env = "gnu"))]

use plimsoll_testkit::child;
use plimsoll_testkit::client::request;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Detail, Format, cpu};

/// A worker without progress for this long is considered deadlocked.
const PATIENCE: Duration = Duration::from_secs(120);

/// Not quite 1000, so that the signals stay out of step with timers of whole milliseconds.
const HERTZ: i32 = 999;

static STOP: AtomicBool = AtomicBool::new(false);

/// Signals that this test's own handler received.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// A kind of work, with the number of its completed turns.
struct Worker {
    name: &'static str,
    turns: AtomicU64,
}

impl Worker {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            turns: AtomicU64::new(0),
        }
    }

    /// Repeats `turn` until the test ends. The calling thread has a timer if timers are per thread.
    fn work(&self, timers: Timers, mut turn: impl FnMut()) {
        let timer = (timers == Timers::PerThread).then(ThreadTimer::start);
        while !STOP.load(Ordering::Relaxed) {
            turn();
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
        drop(timer);
    }
}

static ALLOCATING: Worker = Worker::new("allocations");
static LOCKING: Worker = Worker::new("locks");
static WAITING: Worker = Worker::new("conditions");
static LOADING: Worker = Worker::new("libraries that come and go");
static FORKING: Worker = Worker::new("forks");
static EXECUTING: Worker = Worker::new("executed programs");
static READING: Worker = Worker::new("readings");
static BEGINNING: Worker = Worker::new("threads that come and go");
static SERVING: Worker = Worker::new("pages");

static ALL: [&Worker; 9] = [
    &ALLOCATING,
    &LOCKING,
    &WAITING,
    &LOADING,
    &FORKING,
    &EXECUTING,
    &READING,
    &BEGINNING,
    &SERVING,
];

/// The timer that sends SIGPROF.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timers {
    /// `ITIMER_PROF`, set by the crate pprof, which installs its handler.
    #[cfg(not(plimsoll_sanitized))]
    OfPprof,
    /// `ITIMER_PROF`: the kernel interrupts a running thread.
    OfProcess,
    /// A timer for the CPU time of each thread, which interrupts that thread.
    PerThread,
}

impl Timers {
    fn are_of_pprof(self) -> bool {
        #[cfg(not(plimsoll_sanitized))]
        return self == Self::OfPprof;
        #[cfg(plimsoll_sanitized)]
        false
    }
}

/// Calls the C library's `backtrace`, which unwinds by the tables.
extern "C" fn interrupted(_: libc::c_int) {
    let mut frames = [std::ptr::null_mut(); 64];
    // SAFETY: the buffer has that many entries; `install_handler` has made the first call, which
    // loads the unwinder.
    unsafe {
        let errno = *libc::__errno_location();
        black_box(libc::backtrace(frames.as_mut_ptr(), 64));
        *libc::__errno_location() = errno;
    }
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn install_handler() {
    let mut frames = [std::ptr::null_mut(); 4];
    // SAFETY: `backtrace` writes at most as many frames as the array has; the handler has the right
    // signature.
    unsafe {
        libc::backtrace(frames.as_mut_ptr(), 4);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupted as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        let failed = libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut());
        assert_eq!(failed, 0);
    }
}

fn process_timer(microseconds: libc::suseconds_t) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: microseconds,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a valid timer.
    let failed =
        unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(failed, 0);
}

/// A timer for the calling thread's CPU time. The same thread drops it.
struct ThreadTimer(libc::timer_t);

impl ThreadTimer {
    fn start() -> Self {
        let every = libc::timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000_000 / i64::from(HERTZ),
        };
        let times = libc::itimerspec {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: valid structs; the signal goes to this thread.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGPROF;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::mem::zeroed();
            let clock = libc::CLOCK_THREAD_CPUTIME_ID;
            assert_eq!(libc::timer_create(clock, &raw mut event, &raw mut timer), 0);
            assert_eq!(
                libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut()),
                0
            );
            Self(timer)
        }
    }
}

impl Drop for ThreadTimer {
    fn drop(&mut self) {
        // SAFETY: the timer that `start` made.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Locked for reading while a library is loaded, and for writing across a fork. Otherwise the child
/// would inherit the C library's loader lock in its locked state.
static LOADER: RwLock<()> = RwLock::new(());

fn load_and_unload() {
    for name in [c"libresolv.so.2", c"libnss_files.so.2", c"libanl.so.1"] {
        let _not_forking = LOADER.read().unwrap();
        // SAFETY: a system library, none of whose functions is called.
        unsafe {
            let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
            if !library.is_null() {
                libc::dlclose(library);
            }
        }
    }
}

/// Forks a child that runs `work` and exits, and waits for it. The child has no timer.
fn fork(work: fn()) {
    let child = {
        let _not_loading = LOADER.write().unwrap();
        // SAFETY: the child does what Plimsoll allows after a fork, and then ends.
        unsafe { libc::fork() }
    };
    if child == 0 {
        plimsoll_testkit::child::kill_after_a_minute();
        work();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` is valid for writes.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
    }
    assert_eq!(status, 0, "the status of the child");
}

fn allocate_and_read() {
    let kept: Vec<Vec<u8>> = (0..300).map(|at| vec![1; 100 + at % 7 * 1_000]).collect();
    read();
    drop(kept);
}

fn execute() {
    let arguments = [c"/bin/true".as_ptr(), std::ptr::null()];
    // SAFETY: a path, and a list of arguments that ends with a null pointer. `execv` returns only
    // on failure.
    unsafe {
        libc::execv(c"/bin/true".as_ptr(), arguments.as_ptr());
        libc::_exit(1);
    }
}

/// Reads statistics and tables, as profiles do, but resolves no names: that takes long while
/// libraries come and go.
fn read() {
    for name in ["heap", "block", "mutex", "profile"] {
        black_box(profile::lookup(name).expect("built in").count());
    }
    black_box(plimsoll::heap_stats());
}

/// Returns the paths of all pages.
fn pages() -> Vec<String> {
    let others = [
        "/metrics",
        "/debug/vars",
        "/debug/plimsoll/memory",
        "/debug/plimsoll/history",
        "/debug/plimsoll/threads",
        "/debug/pprof/",
        "/debug/pprof/heap?debug=1",
        "/debug/pprof/goroutine?debug=2",
        "/debug/pprof/profile?seconds=1",
        "/debug/pprof/wall?seconds=1",
        "/debug/pprof/block?seconds=1",
    ];
    let mut pages = others.map(String::from).to_vec();
    for profile in profile::profiles() {
        // Without continuous samples, that page would record for 30 seconds.
        if profile.name() != "profile" {
            pages.push(format!("/debug/pprof/{}", profile.name()));
        }
    }
    pages
}

/// Begins to take samples by the crate pprof, and returns what ends that and checks them.
#[cfg(not(plimsoll_sanitized))]
fn start_pprof() -> impl FnOnce() {
    let profiler = pprof::ProfilerGuardBuilder::default()
        .frequency(HERTZ)
        .build()
        .expect("a profiler");
    // On the first signal, pprof's handler creates its unwinder from the libraries loaded then,
    // and allocates. The test raises that signal while no other thread loads libraries, and
    // outside of `malloc`.
    //
    // SAFETY: runs pprof's handler on this thread.
    assert_eq!(unsafe { libc::raise(libc::SIGPROF) }, 0);
    move || {
        let report = profiler.report().build_unresolved().expect("a report");
        assert!(!report.data.is_empty(), "pprof took no sample");
    }
}

/// Does all that at once. `start` begins samples by another profiler, and returns what ends it.
fn all_at_once<E: FnOnce()>(timers: Timers, start: impl FnOnce() -> E) {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS")
        .map_or(2, |seconds| seconds.parse().expect("a number of seconds"));
    let _plimsoll = plimsoll::start();
    profile::set_block_rate(Duration::from_nanos(1));
    profile::set_mutex_fraction(1);
    cpu::set_rate(cpu::MAX_RATE).expect("a signal is unused");
    let end = start();
    let server = plimsoll::http::serve("127.0.0.1:0").expect("a free port");
    let map = Mutex::new(HashMap::new());
    let list = RwLock::new(Vec::new());
    let condition = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for number in 0..2usize {
            let (map, list, condition) = (&map, &list, &condition);
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                ALLOCATING.work(timers, || {
                    // Few sizes: a profile has a record for each, and many records take long to
                    // write.
                    kept.push(vec![1; 1 + kept.len() % 7 * 9_001]);
                    if kept.len() > 500 {
                        kept.clear();
                    }
                });
            });
            scope.spawn(move || {
                LOCKING.work(timers, || {
                    map.lock().unwrap().insert(number, vec![number; 100]);
                    black_box(list.read().unwrap().len());
                    let mut list = list.write().unwrap();
                    list.push(vec![0u8; 64]);
                    if list.len() > 100 {
                        list.clear();
                    }
                });
            });
            scope.spawn(move || {
                WAITING.work(timers, || {
                    let guard = condition.0.lock().unwrap();
                    let wait = Duration::from_micros(200);
                    let (mut turn, _) = condition.1.wait_timeout(guard, wait).unwrap();
                    *turn += 1;
                    drop(turn);
                    condition.1.notify_all();
                });
            });
        }
        scope.spawn(|| LOADING.work(timers, load_and_unload));
        scope.spawn(|| FORKING.work(timers, || fork(allocate_and_read)));
        scope.spawn(|| EXECUTING.work(timers, || fork(execute)));
        scope.spawn(|| READING.work(timers, read));
        scope.spawn(|| {
            BEGINNING.work(timers, || {
                let begun = thread::spawn(|| black_box(vec![0u8; 10_000]).len());
                assert_eq!(begun.join().ok(), Some(10_000));
            });
        });
        let address = server.address();
        scope.spawn(move || {
            let pages = pages();
            let mut next = pages.iter().cycle();
            SERVING.work(timers, || {
                let page = next.next().expect("a cycle");
                let answer = request(address, "GET", page);
                assert_eq!(answer.status, 200, "{page}: {}", answer.text());
            });
        });
        watch(Duration::from_secs(seconds), timers);
        STOP.store(true, Ordering::Relaxed);
    });
    end();
    let mut bytes = Vec::new();
    let heap = profile::lookup("heap").expect("built in");
    heap.write_with(&mut bytes, Format::Pprof, Detail::Addresses)
        .expect("memory can be written to");
    let lost = profile::lost_events();
    assert_eq!((lost.untracked, lost.waits), (0, 0), "{lost:?}");
    let cpu = profile::lookup("profile").expect("built in").snapshot();
    let sampled: i64 = cpu.records().filter_map(|record| record.value("cpu")).sum();
    assert!(sampled > 0);
    assert_eq!(cpu::set_rate(0), Ok(cpu::MAX_RATE));
}

/// Returns after `least` or later, once each worker has completed a turn and signals have arrived.
/// Aborts if a worker stops.
fn watch(least: Duration, timers: Timers) {
    let start = Instant::now();
    let mut moved = ALL.map(|_| (0, Instant::now()));
    loop {
        let has_begun = moved.iter().all(|(turns, _)| *turns > 0);
        let is_interrupted = timers.are_of_pprof() || SIGNALS.load(Ordering::Relaxed) > 20;
        if start.elapsed() >= least && has_begun && is_interrupted {
            break;
        }
        thread::sleep(Duration::from_millis(20));
        for (worker, (turns, when)) in ALL.iter().zip(&mut moved) {
            let now = worker.turns.load(Ordering::Relaxed);
            if now != *turns {
                (*turns, *when) = (now, Instant::now());
            }
            if when.elapsed() > PATIENCE {
                // Not a panic: the scope would wait for the worker.
                eprintln!("{} stopped after {now} turns", worker.name);
                std::process::abort();
            }
        }
    }
    for worker in ALL {
        eprintln!("{}: {}", worker.name, worker.turns.load(Ordering::Relaxed));
    }
}

/// Returns a heap of 256 MiB, all of it written to. Its pages are small ones, which a fork takes long to copy.
fn large_heap() -> Vec<u8> {
    const SIZE: usize = 256 << 20;
    /// A multiple of the size of a page.
    const UNIT: usize = 64 << 10;
    let mut heap: Vec<u8> = Vec::with_capacity(SIZE);
    let begin = (heap.as_mut_ptr() as usize).next_multiple_of(UNIT);
    // SAFETY: the range is within the allocation; the advice changes no content.
    unsafe { libc::madvise(begin as *mut _, SIZE - UNIT, libc::MADV_NOHUGEPAGE) };
    heap.resize(SIZE, 42);
    black_box(heap)
}

/// A fork with much memory takes longer than the time between two samples.
#[test]
fn forks_with_a_large_heap_end_beside_samples() {
    child::run("forks_with_a_large_heap_end_beside_samples", "", || {
        let heap = large_heap();
        assert_eq!(cpu::set_rate(cpu::MAX_RATE), Ok(0));
        for _ in 0..10 {
            fork(execute);
        }
        let sampled = || {
            let cpu = profile::lookup("profile").expect("built in").snapshot();
            let samples = cpu.records().filter_map(|record| record.value("samples"));
            samples.sum::<i64>()
        };
        while sampled() == 0 {
            fork(execute);
        }
        assert_eq!(cpu::set_rate(0), Ok(cpu::MAX_RATE));
        drop(heap);
    });
}

#[test]
#[cfg(not(plimsoll_sanitized))]
fn samples_survive_the_crate_pprof() {
    child::run("samples_survive_the_crate_pprof", "heap_rate=4k", || {
        all_at_once(Timers::OfPprof, start_pprof);
    });
}

#[test]
fn samples_survive_a_timer_of_the_process() {
    child::run(
        "samples_survive_a_timer_of_the_process",
        "heap_rate=4k",
        || {
            all_at_once(Timers::OfProcess, || {
                install_handler();
                process_timer(1_000_000 / libc::suseconds_t::from(HERTZ));
                || process_timer(0)
            });
        },
    );
}

#[test]
fn samples_survive_timers_of_threads() {
    child::run("samples_survive_timers_of_threads", "heap_rate=4k", || {
        all_at_once(Timers::PerThread, || {
            install_handler();
            || {}
        });
    });
}
