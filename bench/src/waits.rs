//! Locks that are contended in every operation, and locks that are not.
//!
//! `PROGRAM CASE OPERATIONS` runs one of [`CASES`]. Prints the CPU time of an operation in
//! nanoseconds, and the number of voluntary context switches, which is the number of waits.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, RwLock};
use std::thread;

use crate::clock;

/// A name, and the function that runs this many operations.
type Case = (&'static str, fn(usize));

/// The cases. Those that wait in almost every operation come first.
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
            // SAFETY: `getppid` takes no arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }),
    ("futex wake, no waiter", |operations| {
        let word = 0u32;
        for _ in 0..operations {
            let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: the word outlives the call.
            unsafe { libc::syscall(libc::SYS_futex, &raw const word, wake, 1) };
        }
    }),
];

/// The number of [`CASES`] that wait.
pub const WAITING: usize = 5;

/// The `main` of each such program.
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
    // Warms up: one-time work is done here.
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

/// Returns the number of voluntary context switches of this process.
fn switches() -> i64 {
    // SAFETY: all zeros is a valid `rusage`, which the call fills.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Two threads go round a ring of three locks. Each takes the next lock before it releases the
/// last, and holds both for a while. So each waits for the other at every step, after its lock's
/// initial spinning. The time for which locks are held is not counted.
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

/// The time for which both locks are held, in nanoseconds.
const KEPT: u64 = 20_000;

/// CPU time in nanoseconds that belongs to no operation.
static NOT_COUNTED: AtomicU64 = AtomicU64::new(0);

/// Two threads take turns by a condition variable.
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
