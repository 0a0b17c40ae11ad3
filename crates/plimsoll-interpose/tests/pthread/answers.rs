//! Results of the functions.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::harness::{Functions, MODES, Object, in_mode};

/// Returns absolute times: one in the past, and two invalid ones.
fn times() -> [libc::timespec; 3] {
    let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
    [time(1, 0), time(1 << 40, 1_000_000_000), time(1 << 40, -1)]
}

const CLOCKS: [c_int; 3] = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, 99];

/// Runs `work` in another thread, which has ended when this returns.
fn elsewhere(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(work).join().expect("does not panic");
    });
}

struct There(*mut c_void);

// SAFETY: the object is a lock or condition, which threads may share.
unsafe impl Send for There {}
// SAFETY: the object is a lock or condition, which threads may share.
unsafe impl Sync for There {}

impl There {
    fn at(&self) -> *mut c_void {
        self.0
    }
}

/// Calls all functions of a mutex that do not wait forever, and returns their results.
///
/// # Safety
/// `mutex` points to an initialized mutex.
unsafe fn mutex(functions: &Functions, mutex: *mut c_void, can_relock: bool) -> Vec<c_int> {
    let Functions {
        lock,
        unlock,
        timed_lock,
        clock_lock,
        ..
    } = *functions;
    let mut results = Vec::new();
    // SAFETY: the contract makes `mutex` valid; the times outlive the calls.
    unsafe {
        for _ in 0..2 {
            results.push(lock(mutex));
            // The mutex is held: each call is refused, counted, or waits until the timeout.
            if can_relock {
                results.push(lock(mutex));
                results.push(unlock(mutex));
            }
            for time in &times() {
                results.push(timed_lock(mutex, time));
                for clock in CLOCKS {
                    results.push(clock_lock(mutex, clock, time));
                }
            }
            // Unlocks as often as the mutex may have been locked.
            for _ in 0..16 {
                results.push(unlock(mutex));
                if results.ends_with(&[libc::EPERM]) {
                    break;
                }
                let mut is_free = 0;
                let there = There(mutex);
                elsewhere(|| {
                    is_free = libc::pthread_mutex_trylock(there.at().cast());
                    if is_free == 0 {
                        libc::pthread_mutex_unlock(there.at().cast());
                    }
                });
                if is_free == 0 {
                    break;
                }
            }
            // The mutex is free.
            for time in &times() {
                results.push(timed_lock(mutex, time));
                if results.ends_with(&[0]) {
                    results.push(unlock(mutex));
                }
                for clock in CLOCKS {
                    results.push(clock_lock(mutex, clock, time));
                    if results.ends_with(&[0]) {
                        results.push(unlock(mutex));
                    }
                }
            }
        }
    }
    results
}

/// Asserts that `ask` returns the same results in each mode as with the C library's own functions.
fn are_the_c_librarys(ask: impl Fn(&Functions) -> Vec<c_int>) {
    let expected = ask(&Functions::direct());
    assert!(!expected.is_empty());
    for (mode, waited_for) in MODES {
        let answers = in_mode(mode, waited_for, || ask(&Functions::linked()));
        assert_eq!(answers, expected, "{mode:?}");
    }
}

#[test]
fn answers_of_mutexes_are_the_c_librarys() {
    let types = [
        libc::PTHREAD_MUTEX_NORMAL,
        libc::PTHREAD_MUTEX_RECURSIVE,
        libc::PTHREAD_MUTEX_ERRORCHECK,
        // PTHREAD_MUTEX_ADAPTIVE_NP.
        3,
    ];
    for kind in types {
        for protocol in [libc::PTHREAD_PRIO_NONE, libc::PTHREAD_PRIO_INHERIT] {
            for robust in [false, true] {
                are_the_c_librarys(|functions| {
                    let can_relock = kind == libc::PTHREAD_MUTEX_RECURSIVE
                        || kind == libc::PTHREAD_MUTEX_ERRORCHECK;
                    let object = Object::mutex(kind, protocol, robust);
                    // SAFETY: the object is a mutex.
                    unsafe { mutex(functions, object.at(), can_relock) }
                });
            }
        }
    }
}

#[test]
fn a_dead_owner_is_reported() {
    for protocol in [libc::PTHREAD_PRIO_NONE, libc::PTHREAD_PRIO_INHERIT] {
        are_the_c_librarys(|functions| {
            let kind = libc::PTHREAD_MUTEX_NORMAL;
            let object = Object::mutex(kind, protocol, true);
            let mut results = Vec::new();
            // SAFETY: the object is a mutex.
            unsafe {
                let there = There(object.at());
                let lock = functions.lock;
                elsewhere(|| assert_eq!(lock(there.at()), 0));
                results.push((functions.lock)(object.at()));
                results.push(libc::pthread_mutex_consistent(object.at().cast()));
                results.push((functions.unlock)(object.at()));
                results.push((functions.lock)(object.at()));
                results.push((functions.unlock)(object.at()));
                // The owner dies again; this time no thread makes the mutex consistent.
                let there = There(object.at());
                elsewhere(|| assert_eq!(lock(there.at()), 0));
                results.push((functions.timed_lock)(object.at(), &times()[0]));
                results.push((functions.unlock)(object.at()));
                results.push((functions.lock)(object.at()));
            }
            assert_eq!(results[0], libc::EOWNERDEAD);
            results
        });
    }
}

#[test]
fn answers_of_readers_writer_locks_are_the_c_librarys() {
    are_the_c_librarys(|functions| {
        let object = Object::new();
        let lock = object.at();
        let mut results = Vec::new();
        // SAFETY: the object is a readers-writer lock.
        unsafe {
            let timed = |results: &mut Vec<c_int>| {
                for time in &times() {
                    for timed in [functions.timed_read, functions.timed_write] {
                        results.push(timed(lock, time));
                        if results.ends_with(&[0]) {
                            results.push((functions.rw_unlock)(lock));
                        }
                    }
                    for clock in CLOCKS {
                        for clocked in [functions.clock_read, functions.clock_write] {
                            results.push(clocked(lock, clock, time));
                            if results.ends_with(&[0]) {
                                results.push((functions.rw_unlock)(lock));
                            }
                        }
                    }
                }
            };
            timed(&mut results);
            results.push((functions.write)(lock));
            // Calls by the writer.
            results.push((functions.read)(lock));
            results.push((functions.write)(lock));
            timed(&mut results);
            results.push((functions.rw_unlock)(lock));
            results.push((functions.read)(lock));
            results.push((functions.read)(lock));
            timed(&mut results);
            results.push((functions.rw_unlock)(lock));
            results.push((functions.rw_unlock)(lock));
            results.push((functions.write)(lock));
            results.push((functions.rw_unlock)(lock));
        }
        assert!(results.contains(&libc::EDEADLK) && results.contains(&libc::ETIMEDOUT));
        results
    });
}

#[test]
fn answers_of_conditions_are_the_c_librarys() {
    are_the_c_librarys(|functions| {
        let condition = Object::new();
        let condition = condition.at();
        let mut results = Vec::new();
        for kind in [
            libc::PTHREAD_MUTEX_NORMAL,
            libc::PTHREAD_MUTEX_RECURSIVE,
            libc::PTHREAD_MUTEX_ERRORCHECK,
        ] {
            let mutex = Object::mutex(kind, libc::PTHREAD_PRIO_NONE, false);
            let mutex = mutex.at();
            // SAFETY: the objects are a condition and a mutex; the times outlive the calls.
            unsafe {
                results.push((functions.signal)(condition));
                results.push((functions.broadcast)(condition));
                if kind == libc::PTHREAD_MUTEX_ERRORCHECK {
                    // The thread does not hold the mutex.
                    results.push((functions.wait)(condition, mutex));
                }
                results.push((functions.lock)(mutex));
                for time in &times() {
                    results.push((functions.timed_wait)(condition, mutex, time));
                    for clock in CLOCKS {
                        results.push((functions.clock_wait)(condition, mutex, clock, time));
                    }
                }
                results.push((functions.unlock)(mutex));
                assert_eq!(libc::pthread_mutex_destroy(mutex.cast()), 0);
            }
        }
        results
    });
}

/// Either function wakes a thread that waits for a condition, which then holds the mutex again.
#[test]
fn conditions_are_waited_for_and_signalled() {
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let functions = Functions::linked();
            for wake in [functions.signal, functions.broadcast] {
                let (mutex, condition) = (Object::new(), Object::new());
                let there = [There(mutex.at()), There(condition.at())];
                let mut is_set = false;
                let set = There(ptr::from_mut(&mut is_set).cast());
                // SAFETY: the objects are a mutex and a condition; the mutex guards the flag.
                unsafe {
                    std::thread::scope(|scope| {
                        let waiter = scope.spawn(move || {
                            let set = set.at().cast::<bool>();
                            let [mutex, condition] = &there;
                            assert_eq!((functions.lock)(mutex.at()), 0);
                            while !set.read_volatile() {
                                assert_eq!((functions.wait)(condition.at(), mutex.at()), 0);
                            }
                            assert_eq!((functions.unlock)(mutex.at()), 0);
                        });
                        assert_eq!((functions.lock)(mutex.at()), 0);
                        ptr::from_mut(&mut is_set).write_volatile(true);
                        assert_eq!(wake(condition.at()), 0);
                        assert_eq!((functions.unlock)(mutex.at()), 0);
                        waiter.join().expect("does not panic");
                    });
                }
            }
        });
    }
}

/// These functions do not set `errno`.
#[test]
fn errno_is_left_alone() {
    const UNTOUCHED: i32 = 12_345;
    for (mode, waited_for) in MODES {
        in_mode(mode, waited_for, || {
            let functions = Functions::linked();
            let mutex = Object::mutex(libc::PTHREAD_MUTEX_ERRORCHECK, 0, false);
            // SAFETY: the object is a mutex; `errno` belongs to this thread.
            unsafe {
                *libc::__errno_location() = UNTOUCHED;
                assert_eq!((functions.lock)(mutex.at()), 0);
                assert_eq!((functions.lock)(mutex.at()), libc::EDEADLK);
                assert_eq!((functions.unlock)(mutex.at()), 0);
                assert_eq!((functions.unlock)(mutex.at()), libc::EPERM);
                assert_eq!(*libc::__errno_location(), UNTOUCHED);
            }
        });
    }
}
