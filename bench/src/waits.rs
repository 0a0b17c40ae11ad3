//! Locks that are contended in every operation, and such as are not.
//!
//! `PROGRAM CASE OPERATIONS` runs one of [`CASES`] and prints the processor time of an operation in
//! nanoseconds, and how often a thread gave up its processor by itself, which is how often it
//! waited.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, RwLock};
use std::thread;

use crate::clock;

/// A name, and what runs that many operations of it.
type Case = (&'static str, fn(usize));

/// Those that wait in about every operation come first.
pub const CASES: [Case; 10] = [
    ("std Mutex", |operations| {
        let locks: [Mutex<()>; 3] = Default::default();
        chase(operations, |at| locks[at].lock().unwrap());
    }),
    ("parking_lot Mutex", |operations| {
        let locks: [parking_lot::Mutex<()>; 3] = Default::default();
        chase(operations, |at| locks[at].lock());
    }),
    ("std RwLock, write", |operations| {
        let locks: [RwLock<()>; 3] = Default::default();
        chase(operations, |at| locks[at].write().unwrap());
    }),
    ("std Condvar, back and forth", condvar),
    ("park, back and forth", park),
    ("std Mutex, not contended", |operations| {
        let lock = Mutex::new(0);
        for _ in 0..operations {
            *black_box(&lock).lock().unwrap() += 1;
        }
    }),
    ("parking_lot Mutex, not contended", |operations| {
        let lock = parking_lot::Mutex::new(0);
        for _ in 0..operations {
            *black_box(&lock).lock() += 1;
        }
    }),
    ("std RwLock, not contended", |operations| {
        let lock = RwLock::new(0);
        for _ in 0..operations {
            *black_box(&lock).write().unwrap() += 1;
        }
    }),
    ("getppid", |operations| {
        for _ in 0..operations {
            // SAFETY: always callable.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }),
    ("futex wake, nobody waits", |operations| {
        let word = 0u32;
        for _ in 0..operations {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word outlives the call.
            unsafe { libc::syscall(libc::SYS_futex, &raw const word, wake, 1) };
        }
    }),
];

/// How many of [`CASES`] wait.
pub const WAITING: usize = 5;

/// The `main` of each program that does this.
pub fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().expect("a case");
    let operations: usize = arguments
        .next()
        .and_then(|operations| operations.parse().ok())
        .expect("a number of operations");
    let (_, case) = CASES
        .into_iter()
        .find(|(case, _)| *case == name)
        .expect("one of the cases");
    // Whatever is done once is done.
    case(operations / 20);
    NOT_COUNTED.store(0, Ordering::Relaxed);
    let (start, waited) = (clock::process(), switches());
    case(operations);
    let took = clock::process() - start - NOT_COUNTED.load(Ordering::Relaxed);
    println!(
        "{} {}",
        took as f64 / operations as f64,
        (switches() - waited) as f64 / operations as f64
    );
}

/// How often threads of this process gave up their processors by themselves.
fn switches() -> i64 {
    // SAFETY: fills a struct of the right layout, for which all zeros is a value.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Two threads go round a ring of three locks, each taking the next before it gives back the last,
/// and keeping both for a while: so each waits for the other at every step, after all the spinning
/// that its lock does first. The time for which locks are kept is not counted.
fn chase<G>(operations: usize, lock: impl Fn(usize) -> G + Sync) {
    let started = Barrier::new(2);
    thread::scope(|scope| {
        for first in 0..2 {
            let (lock, started) = (&lock, &started);
            scope.spawn(move || {
                let mut held = lock(first);
                started.wait();
                let mut kept = 0;
                for step in 1..=operations / 2 {
                    let next = lock((first + step) % 3);
                    let start = clock::thread();
                    while clock::thread() - start < KEPT {
                        std::hint::spin_loop();
                    }
                    kept += clock::thread() - start;
                    drop(std::mem::replace(&mut held, next));
                }
                NOT_COUNTED.fetch_add(kept, Ordering::Relaxed);
            });
        }
    });
}

/// Nanoseconds for which both locks are kept.
const KEPT: u64 = 20_000;

/// Processor time in nanoseconds that no operation takes.
static NOT_COUNTED: AtomicU64 = AtomicU64::new(0);

/// Two threads take turns.
fn condvar(operations: usize) {
    let pair = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for parity in 0..2 {
            let pair = &pair;
            scope.spawn(move || {
                for _ in 0..operations / 2 {
                    let guard = pair.0.lock().unwrap();
                    let mut turn = pair
                        .1
                        .wait_while(guard, |turn| *turn % 2 != parity)
                        .unwrap();
                    *turn += 1;
                    drop(turn);
                    pair.1.notify_one();
                }
            });
        }
    });
}

fn park(operations: usize) {
    let turn = AtomicUsize::new(0);
    let take_turns = |parity: usize, other: thread::Thread| {
        for _ in 0..operations / 2 {
            while turn.load(Ordering::Acquire) % 2 != parity {
                thread::park();
            }
            turn.fetch_add(1, Ordering::AcqRel);
            other.unpark();
        }
    };
    thread::scope(|scope| {
        let this = thread::current();
        let other = scope.spawn(move || take_turns(1, this));
        take_turns(0, other.thread().clone());
    });
}
