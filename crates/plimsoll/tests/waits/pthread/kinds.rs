//! Every kind of mutex keeps its behaviour, and waits are charged to its release.

use std::time::{Duration, Instant};

use crate::pthread::c::{self, Mutex, kind};
use crate::pthread::scene::{HELD, Recording, WAITERS, blocked, blocked_by_each, recorded};

#[test]
fn only_the_last_unlock_releases_a_recursive_mutex() {
    let _recording = Recording::all();
    let mutex = Mutex::of_kind(kind::RECURSIVE);
    let before = recorded("mutex", "c_unlocks_recursive").delay;
    for _ in 0..3 {
        assert_eq!(c::c_locks(mutex.get()), 0);
    }
    let wall = blocked(
        || assert_eq!(c::c_waits_recursive(mutex.get()), 0),
        || {
            for _ in 0..2 {
                assert_eq!(c::c_unlocks_inner(mutex.get()), 0);
            }
            assert_eq!(c::c_unlocks_recursive(mutex.get()), 0);
        },
    );
    assert_eq!(recorded("mutex", "c_unlocks_inner").events, 0);
    let mut blamed = recorded("mutex", "c_unlocks_recursive");
    blamed.delay -= before;
    blamed.is_of(WAITERS, wall);
}

#[test]
fn a_refused_unlock_is_not_charged() {
    let _recording = Recording::all();
    let mutex = Mutex::of_kind(kind::ERRORCHECK);
    let before = recorded("mutex", "c_unlocks_checking").delay;
    assert_eq!(c::c_locks(mutex.get()), 0);
    assert_eq!(c::c_locks(mutex.get()), libc::EDEADLK);
    let wall = blocked(
        || assert_eq!(c::c_waits_checking(mutex.get()), 0),
        || {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(c::c_unlocks_wrongly(mutex.get()), libc::EPERM));
            });
            assert_eq!(c::c_unlocks_checking(mutex.get()), 0);
        },
    );
    assert_eq!(recorded("mutex", "c_unlocks_wrongly").events, 0);
    let mut blamed = recorded("mutex", "c_unlocks_checking");
    blamed.delay -= before;
    blamed.is_of(WAITERS, wall);
    assert_eq!(c::c_unlocks_wrongly(mutex.get()), libc::EPERM);
    // The attempt to lock the mutex twice was refused, so no thread waited.
    assert_eq!(recorded("block", "c_locks").events, 0);
}

/// Ends a thread that holds the mutex while another waits for it. Returns the waiter's result.
fn wait_for_the_dead(mutex: &Mutex) -> i32 {
    let result = std::sync::atomic::AtomicI32::new(-1);
    std::thread::scope(|scope| {
        let (locked, is_locked) = std::sync::mpsc::channel();
        let (die, is_to_die) = std::sync::mpsc::channel();
        scope.spawn(move || {
            assert_eq!(c::c_locks(mutex.get()), 0);
            locked.send(()).unwrap();
            is_to_die.recv().unwrap();
        });
        is_locked.recv().unwrap();
        blocked_by_each(
            1,
            |_| {
                let recorded = c::c_waits_for_the_dead(mutex.get());
                result.store(recorded, std::sync::atomic::Ordering::Relaxed);
                if recorded == libc::EOWNERDEAD {
                    // SAFETY: the thread owns the mutex.
                    unsafe { libc::pthread_mutex_consistent(mutex.get()) };
                }
                if recorded != libc::ENOTRECOVERABLE {
                    assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
                }
            },
            || die.send(()).unwrap(),
        );
    });
    result.into_inner()
}

#[test]
fn a_waiter_for_a_dead_owner_gets_an_error_and_has_waited() {
    let _recording = Recording::all();
    for kind in [kind::ROBUST, kind::ROBUST | kind::INHERIT] {
        let before = recorded("block", "c_waits_for_the_dead");
        let mutex = Mutex::of_kind(kind);
        let start = Instant::now();
        assert_eq!(wait_for_the_dead(&mutex), libc::EOWNERDEAD);
        let wall = start.elapsed();
        // The mutex is consistent again.
        assert_eq!(c::c_locks(mutex.get()), 0);
        assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
        let mut waited = recorded("block", "c_waits_for_the_dead");
        assert_eq!(waited.events - before.events, 1, "{waited:?}");
        waited.delay -= before.delay;
        waited.is_of(1, wall);
        waited.is_at("mutex", "pthread_mutex_lock", "pthread_mutex_lock");
    }
}

#[test]
fn an_inconsistent_mutex_is_refused() {
    let _recording = Recording::all();
    let mutex = Mutex::of_kind(kind::ROBUST);
    std::thread::scope(|scope| {
        let dies = scope.spawn(|| assert_eq!(c::c_locks(mutex.get()), 0));
        dies.join().unwrap();
    });
    assert_eq!(c::c_locks(mutex.get()), libc::EOWNERDEAD);
    // One waiter: some versions of the C library wake only the first waiter.
    blocked_by_each(
        1,
        |_| assert_eq!(c::c_waits_for_the_dead(mutex.get()), libc::ENOTRECOVERABLE),
        || assert_eq!(c::c_unlocks_plainly(mutex.get()), 0),
    );
    assert_eq!(c::c_tries(mutex.get()), libc::ENOTRECOVERABLE);
}

#[test]
fn a_timed_out_wait_lasts_its_limit_and_is_charged_to_no_thread() {
    let _recording = Recording::all();
    let mutex = Mutex::zeroed();
    assert_eq!(c::c_locks(mutex.get()), 0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let limit = HELD.as_millis() as i64;
            assert_eq!(c::c_waits_in_vain(mutex.get(), limit), libc::ETIMEDOUT);
        });
    });
    let wall = start.elapsed();
    assert_eq!(c::c_unlocks_in_vain(mutex.get()), 0);
    let waited = recorded("block", "c_waits_in_vain");
    waited.is_of(1, wall);
    waited.is_at(
        "mutex",
        "pthread_mutex_timedlock",
        "pthread_mutex_timedlock",
    );
    assert_eq!(recorded("mutex", "c_unlocks_in_vain").delay, Duration::ZERO);
}
