//! What is written under a lock is there for the next one who has it. These accesses are plain
//! ones: with ThreadSanitizer, they are errors unless it is told of every lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::harness::{Functions, MODES, Object, in_mode};

/// An object of the C library's, and what is to be used only as that allows.
struct Guarded {
    object: Box<Object>,
    other: Box<Object>,
    total: UnsafeCell<usize>,
}

// SAFETY: `total` is used as the lock allows, and the objects are for threads to share.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Self {
        Self {
            object: Object::new(),
            other: Object::new(),
            total: UnsafeCell::new(0),
        }
    }

    fn at(&self) -> *mut c_void {
        self.object.at()
    }

    /// # Safety
    /// Nobody else uses it meanwhile.
    unsafe fn add(&self) {
        // SAFETY: the caller's.
        unsafe { *self.total.get() += 1 };
    }

    /// # Safety
    /// Nobody writes to it meanwhile.
    unsafe fn total(&self) -> usize {
        // SAFETY: the caller's.
        unsafe { *self.total.get() }
    }
}

const THREADS: usize = 3;
const TURNS: usize = 2_000;

/// Has threads add to it, each as `add` does, in each mode.
fn all_is_added(add: impl Fn(&Functions, &Guarded) + Sync) {
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let functions = Functions::linked();
            let guarded = Guarded::new();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        for turn in 0..TURNS {
                            add(&functions, &guarded);
                            if turn % 64 == 0 {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            });
            // SAFETY: all have ended.
            assert_eq!(unsafe { guarded.total() }, THREADS * TURNS, "{mode:?}");
        });
    }
}

const LATE: libc::timespec = libc::timespec {
    tv_sec: 1 << 40,
    tv_nsec: 0,
};

#[test]
fn what_a_mutex_guards_is_seen_by_the_next() {
    all_is_added(|functions, guarded| {
        // SAFETY: it is a mutex, which the thread has.
        unsafe {
            assert_eq!((functions.lock)(guarded.at()), 0);
            guarded.add();
            assert_eq!((functions.unlock)(guarded.at()), 0);
        }
    });
}

#[test]
fn so_is_it_with_time_limits() {
    all_is_added(|functions, guarded| {
        // SAFETY: it is a mutex, which the thread has.
        unsafe {
            assert_eq!((functions.timed_lock)(guarded.at(), &LATE), 0);
            guarded.add();
            assert_eq!((functions.unlock)(guarded.at()), 0);
        }
    });
    all_is_added(|functions, guarded| {
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: it is a mutex, which the thread has.
        unsafe {
            assert_eq!((functions.clock_lock)(guarded.at(), clock, &LATE), 0);
            guarded.add();
            assert_eq!((functions.unlock)(guarded.at()), 0);
        }
    });
}

#[test]
fn what_writers_write_is_seen_by_readers() {
    all_is_added(|functions, guarded| {
        // SAFETY: it is a readers-writer lock, which the thread has.
        unsafe {
            assert_eq!((functions.read)(guarded.at()), 0);
            let before = guarded.total();
            assert_eq!((functions.rw_unlock)(guarded.at()), 0);
            assert_eq!((functions.timed_write)(guarded.at(), &LATE), 0);
            assert!(guarded.total() >= before);
            guarded.add();
            assert_eq!((functions.rw_unlock)(guarded.at()), 0);
            assert_eq!((functions.timed_read)(guarded.at(), &LATE), 0);
            assert!(guarded.total() > before);
            assert_eq!((functions.rw_unlock)(guarded.at()), 0);
            assert_eq!((functions.write)(guarded.at()), 0);
            assert_eq!((functions.rw_unlock)(guarded.at()), 0);
        }
    });
}

#[test]
fn what_is_written_before_a_signal_is_seen_by_who_waits() {
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let functions = Functions::linked();
            let guarded = Guarded::new();
            std::thread::scope(|scope| {
                // Turns are taken: one thread has the even numbers, the other the odd ones.
                for number in 0..2 {
                    let (functions, guarded) = (&functions, &guarded);
                    scope.spawn(move || {
                        let (condition, mutex) = (guarded.other.at(), guarded.at());
                        for turn in 0..TURNS {
                            // SAFETY: a condition, and a mutex, which the thread has.
                            unsafe {
                                assert_eq!((functions.lock)(mutex), 0);
                                while guarded.total() % 2 != number {
                                    let waited = match turn % 3 {
                                        0 => (functions.wait)(condition, mutex),
                                        1 => (functions.timed_wait)(condition, mutex, &LATE),
                                        _ => {
                                            let clock = libc::CLOCK_MONOTONIC;
                                            (functions.clock_wait)(condition, mutex, clock, &LATE)
                                        }
                                    };
                                    assert_eq!(waited, 0);
                                }
                                guarded.add();
                                let wake = [functions.signal, functions.broadcast][turn % 2];
                                assert_eq!(wake(condition), 0);
                                assert_eq!((functions.unlock)(mutex), 0);
                            }
                        }
                    });
                }
            });
            // SAFETY: both have ended.
            assert_eq!(unsafe { guarded.total() }, 2 * TURNS, "{mode:?}");
        });
    }
}
