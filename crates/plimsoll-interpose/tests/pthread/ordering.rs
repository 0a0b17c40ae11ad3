//! Writes under a lock are visible to its next owner. The accesses are plain ones, so
//! ThreadSanitizer reports a race unless it sees every lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use super::harness::{Functions, MODES, Object, in_mode};

/// Objects of the C library, and data that they guard.
struct Guarded {
    object: Box<Object>,
    other: Box<Object>,
    total: UnsafeCell<usize>,
}

// SAFETY: threads use `total` only under the lock, and may share the objects.
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
    /// No other thread uses `total` meanwhile.
    unsafe fn add(&self) {
        // SAFETY: no other thread uses the total meanwhile, by this function's contract.
        unsafe { *self.total.get() += 1 };
    }

    /// # Safety
    /// No other thread writes to `total` meanwhile.
    unsafe fn total(&self) -> usize {
        // SAFETY: no other thread writes to the total meanwhile, by this function's contract.
        unsafe { *self.total.get() }
    }
}

const THREADS: usize = 3;
const TURNS: usize = 2_000;

/// Runs `add` in several threads in each mode, and asserts the total.
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
            // SAFETY: all threads have ended.
            assert_eq!(unsafe { guarded.total() }, THREADS * TURNS, "{mode:?}");
        });
    }
}

const LATE: libc::timespec = libc::timespec {
    tv_sec: 1 << 40,
    tv_nsec: 0,
};

#[test]
fn data_under_a_mutex_is_visible_to_the_next_owner() {
    all_is_added(|functions, guarded| {
        // SAFETY: the object is a mutex, and this thread holds it in `add`.
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
        // SAFETY: the object is a mutex, and this thread holds it in `add`.
        unsafe {
            assert_eq!((functions.timed_lock)(guarded.at(), &LATE), 0);
            guarded.add();
            assert_eq!((functions.unlock)(guarded.at()), 0);
        }
    });
    all_is_added(|functions, guarded| {
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: the object is a mutex, and this thread holds it in `add`.
        unsafe {
            assert_eq!((functions.clock_lock)(guarded.at(), clock, &LATE), 0);
            guarded.add();
            assert_eq!((functions.unlock)(guarded.at()), 0);
        }
    });
}

#[test]
fn writes_are_visible_to_later_readers() {
    all_is_added(|functions, guarded| {
        // SAFETY: the object is a readers-writer lock: this thread reads the total as a reader, and
        // adds as the writer.
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
fn writes_before_a_signal_are_seen_by_the_waiter() {
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let functions = Functions::linked();
            let guarded = Guarded::new();
            std::thread::scope(|scope| {
                // The threads take turns: one takes the even numbers, the other the odd ones.
                for number in 0..2 {
                    let (functions, guarded) = (&functions, &guarded);
                    scope.spawn(move || {
                        let (condition, mutex) = (guarded.other.at(), guarded.at());
                        for turn in 0..TURNS {
                            // SAFETY: the objects are a condition and a mutex, and this thread
                            // holds the mutex at each access.
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
            // SAFETY: both threads have ended.
            assert_eq!(unsafe { guarded.total() }, 2 * TURNS, "{mode:?}");
        });
    }
}
