//! A hunt for deadlocks. All at once, threads allocate, wait for locks of all kinds, and load and
//! unload libraries. Signals that allocate and wake interrupt them; they fork, and read statistics
//! and profiles. The test passes if every thread still makes progress.
//!
//! Runs for 5 seconds; longer with
//! `PLIMSOLL_SOAK_SECONDS=60 cargo test --release --test whole_process -- everything`.
#![cfg(feature = "interpose")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use plimsoll::metrics;
use plimsoll::profile::{self, Format};

/// A thread without progress for this long is considered deadlocked.
const PATIENCE: Duration = Duration::from_secs(120);

static STOP: AtomicBool = AtomicBool::new(false);

/// A worker, with the number of its completed turns.
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

    fn work(&self, mut turn: impl FnMut()) {
        while !STOP.load(Ordering::Relaxed) {
            turn();
            self.turns.fetch_add(1, Ordering::Relaxed);
        }
    }
}

static ALLOCATING: Worker = Worker::new("allocations");
static STD: Worker = Worker::new("locks of the standard library");
static PARKING_LOT: Worker = Worker::new("locks of parking_lot");
static CONDITIONS: Worker = Worker::new("conditions and channels");
static LOADING: Worker = Worker::new("libraries that come and go");
static FORKING: Worker = Worker::new("forks");
static RATES: Worker = Worker::new("changes of rates");
static READING: Worker = Worker::new("profiles");
static COLLECTING: Worker = Worker::new("collections");
static SIGNALS: Worker = Worker::new("signals");

static ALL: [&Worker; 10] = [
    &ALLOCATING,
    &STD,
    &PARKING_LOT,
    &CONDITIONS,
    &LOADING,
    &FORKING,
    &RATES,
    &READING,
    &COLLECTING,
    &SIGNALS,
];

/// Does not allocate from the system's allocator, which is not reentrant. It wakes, samples a wait,
/// and captures stacks for both.
extern "C" fn interrupt(_: libc::c_int) {
    static WORD: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the word is static; its value is not the expected one, so the call does not block.
    unsafe {
        let errno = *libc::__errno_location();
        libc::syscall(
            libc::SYS_futex,
            &raw const WORD,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            1,
            0,
        );
        libc::syscall(
            libc::SYS_futex,
            &raw const WORD,
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        );
        *libc::__errno_location() = errno;
    }
    SIGNALS.turns.fetch_add(1, Ordering::Relaxed);
}

fn signals(microseconds: libc::suseconds_t) {
    // SAFETY: the handler has the right signature, and the timer is valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = interrupt as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // Without SA_RESTART, so that signals interrupt waits.
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()),
            0
        );
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: microseconds,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()),
            0
        );
    }
}

fn write_profiles(names: &[&str]) {
    for name in names {
        let profile = profile::lookup(name).expect("built in");
        for format in [Format::Pprof, Format::Text] {
            let mut bytes = Vec::new();
            profile
                .write_with(&mut bytes, format, profile::Detail::Names)
                .expect("writing to memory");
            black_box(bytes);
        }
    }
    black_box((plimsoll::mem_stats(), plimsoll::gc_stats()));
    let names = metrics::all().map(|metric| metric.name);
    let mut all: Vec<_> = names.map(metrics::Sample::new).collect();
    metrics::read(&mut all);
}

/// Runs a collector for a few cycles, in which it pauses, sweeps, and is interrupted.
fn collect() {
    let collector = Collector::register("short").expect("a name for all of them");
    for forced in [false, true, false] {
        let dead = vec![vec![1u8; 3000]; 10];
        let cycle = collector.begin(if forced {
            Cause::Forced
        } else {
            Cause::Automatic
        });
        let pause = cycle.pause();
        pause.stopped();
        pause.end();
        cycle.mark_termination().finish(1, 2);
        let sweep = cycle.sweep();
        drop(dead);
        drop(sweep);
    }
    drop(collector.begin(Cause::Automatic));
}

/// Keeps threads from forking while a library is being loaded: the child would inherit the C
/// library's lock in its locked state.
static LOADER: RwLock<()> = RwLock::new(());

/// Forks a child that writes its profiles and exits.
fn fork() {
    let child = {
        let _not_loading = LOADER.write().unwrap();
        // SAFETY: the child makes only calls that the library allows after a fork.
        unsafe { libc::fork() }
    };
    if child == 0 {
        plimsoll_testkit::child::kill_after_a_minute();
        let lock = Mutex::new(vec![1]);
        lock.lock().unwrap().push(2);
        write_profiles(&["mutex"]);
        collect();
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
    assert_eq!(status, 0, "the child did not get on");
}

#[test]
fn every_worker_makes_progress() {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS")
        .map_or(5, |seconds| seconds.parse().expect("a number of seconds"));
    profile::set_heap_rate(16 << 10);
    profile::set_block_rate(Duration::from_nanos(1));
    profile::set_mutex_fraction(1);
    let std_locks = (Mutex::new(HashMap::new()), RwLock::new(Vec::new()));
    let parking_locks = (
        parking_lot_0_12::Mutex::new(HashMap::new()),
        parking_lot_0_13::RwLock::new(Vec::new()),
    );
    let condition = (Mutex::new(0), Condvar::new());
    signals(1000);
    thread::scope(|scope| {
        for of in 0..3usize {
            let (std_locks, parking_locks, condition) = (&std_locks, &parking_locks, &condition);
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                ALLOCATING.work(|| {
                    kept.push(vec![1; 1 + kept.len() * 37 % 70_000]);
                    if kept.len() > 500 {
                        kept.clear();
                    }
                });
            });
            scope.spawn(move || {
                STD.work(|| {
                    // Allocates with the lock held.
                    std_locks.0.lock().unwrap().insert(of, vec![of; 100]);
                    black_box(std_locks.1.read().unwrap().len());
                    let mut list = std_locks.1.write().unwrap();
                    list.push(vec![0u8; 64]);
                    if list.len() > 100 {
                        list.clear();
                    }
                });
            });
            scope.spawn(move || {
                PARKING_LOT.work(|| {
                    parking_locks.0.lock().insert(of, vec![of; 100]);
                    black_box(parking_locks.1.read().len());
                    let mut list = parking_locks.1.write();
                    list.push(vec![0u8; 64]);
                    if list.len() > 100 {
                        list.clear();
                    }
                    // Other threads want the lock as well, and some give up before they get it.
                    drop(parking_locks.0.try_lock_for(Duration::from_micros(50)));
                });
            });
            scope.spawn(move || {
                let (send, receive) = mpsc::channel();
                CONDITIONS.work(|| {
                    let guard = condition.0.lock().unwrap();
                    let wait = Duration::from_micros(200);
                    let (mut turn, _) = condition.1.wait_timeout(guard, wait).unwrap();
                    *turn += 1;
                    drop(turn);
                    condition.1.notify_all();
                    let send = send.clone();
                    thread::scope(|scope| {
                        scope.spawn(move || send.send(vec![1u8; 10]));
                        black_box(receive.recv().unwrap());
                    });
                });
            });
        }
        scope.spawn(|| {
            LOADING.work(|| {
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
            });
        });
        scope.spawn(|| FORKING.work(fork));
        scope.spawn(|| {
            RATES.work(|| {
                for rate in [1, 0, 10_000, 1] {
                    profile::set_block_rate(Duration::from_nanos(rate));
                    profile::set_mutex_fraction(rate as u32);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        });
        for _ in 0..2 {
            scope.spawn(|| COLLECTING.work(collect));
        }
        scope.spawn(|| READING.work(|| write_profiles(&["heap", "block", "mutex"])));

        let start = Instant::now();
        let mut moved = ALL.map(|worker| (worker.turns.load(Ordering::Relaxed), Instant::now()));
        // If necessary, waits longer, until every thread has made one turn.
        let begins = |(turns, _): &(_, Instant)| *turns == 0;
        while start.elapsed() < Duration::from_secs(seconds) || moved.iter().any(begins) {
            thread::sleep(Duration::from_millis(100));
            for (worker, (turns, when)) in ALL.iter().zip(&mut moved) {
                let now = worker.turns.load(Ordering::Relaxed);
                if now != *turns {
                    (*turns, *when) = (now, Instant::now());
                }
                if when.elapsed() > PATIENCE {
                    // Aborts, because the scope would wait for a thread that never ends.
                    eprintln!("{} do not get on", worker.name);
                    std::process::abort();
                }
            }
        }
        STOP.store(true, Ordering::Relaxed);
    });
    signals(0);
    for worker in ALL {
        let turns = worker.turns.load(Ordering::Relaxed);
        eprintln!("{}: {turns}", worker.name);
        assert!(turns > 0, "{} did not get on", worker.name);
    }
    let lost = profile::lost_events();
    assert_eq!((lost.untracked, lost.waits), (0, 0), "{lost:?}");
}
