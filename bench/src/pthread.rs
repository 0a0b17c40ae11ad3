//! Uncontended locks of the C library: locking and unlocking.
//!
//! `PROGRAM CASE PAIRS` runs one of [`CASES`] and prints the CPU time of a pair in nanoseconds.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use crate::arguments::number;
use crate::clock;

/// A name, whether the process has other threads, and the function that runs this many pairs. In a
/// process that never had other threads, the C library avoids atomic instructions.
type Case = (&'static str, bool, fn(usize));

/// The measured cases.
pub const CASES: [Case; 4] = [
    ("mutex", true, mutex),
    ("rwlock, read", true, read),
    ("rwlock, write", true, write),
    ("mutex, one thread", false, mutex),
];

/// The `main` of each such program.
pub fn main() {
    let name = std::env::args().nth(1).expect("a case");
    let pairs = number(2, 1);
    let mut cases = CASES.into_iter();
    let case = cases.find(|(case, ..)| *case == name);
    let (_, has_threads, case) = case.expect("one of the cases");
    let (end, ends) = mpsc::channel::<()>();
    let other = has_threads.then(|| thread::spawn(move || ends.recv()));
    case(pairs / 10);
    let start = clock::process();
    case(pairs);
    let took = clock::process() - start;
    println!("{}", took as f64 / pairs as f64);
    drop(end);
    if let Some(other) = other {
        // A panicking thread reports its own panic.
        let _ = other.join().expect("it does not panic");
    }
}

/// Defines a function with this name that locks and unlocks this many times.
macro_rules! pairs {
    ($name:ident, $lock:expr, $take:ident, $give:ident) => {
        fn $name(pairs: usize) {
            let mut lock = $lock;
            for _ in 0..pairs {
                let lock = black_box(&raw mut lock);
                // SAFETY: the lock is initialized, and outlives the calls.
                unsafe {
                    black_box(libc::$take(lock));
                    black_box(libc::$give(lock));
                }
            }
        }
    };
}

pairs!(
    mutex,
    libc::PTHREAD_MUTEX_INITIALIZER,
    pthread_mutex_lock,
    pthread_mutex_unlock
);
pairs!(
    read,
    libc::PTHREAD_RWLOCK_INITIALIZER,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock
);
pairs!(
    write,
    libc::PTHREAD_RWLOCK_INITIALIZER,
    pthread_rwlock_wrlock,
    pthread_rwlock_unlock
);
