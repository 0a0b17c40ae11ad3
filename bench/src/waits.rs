//! Locks that are contended in every operation, and locks that are not.
//!
//! `PROGRAM CASE OPERATIONS` runs one of [`CASES`]. Prints the CPU time of an operation in
//! nanoseconds, and the number of voluntary context switches, which is the number of waits.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, RwLock};
use std::thread;

use crate::arguments::number;
use crate::clock;

/// A name, and the function that runs this many operations.
type Case = (&'static str, fn(usize));

/// The cases. Those that wait in almost every operation come first.
pub const CASES: [Case; 6] = [
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
];

/// The number of [`CASES`] that wait.
pub const WAITING: usize = 3;

/// The `main` of each such program.
pub fn main() {
    let name = std::env::args().nth(1).expect("a case");
    let operations = number(2, 1);
    let case = CASES.into_iter().find(|(case, _)| *case == name);
    let (_, case) = case.expect("one of the cases");
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
    clock::usage(libc::RUSAGE_SELF).ru_nvcsw
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
