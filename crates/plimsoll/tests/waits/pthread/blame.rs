//! The release of a lock is charged for its waiters.

use std::time::Instant;

use crate::pthread::c::{self, Mutex, RwLock, kind};
use crate::pthread::scene::{Recording, WAITERS, blocked, recorded};

/// Holds a lock until all threads wait, and some time longer, and releases it. Checks that the two
/// profiles show the waiters and the charged release. Each stack begins with the function of the C
/// library, followed by its callers. `waits` and `releases` are the names of the calling functions;
/// the leaves are those of the C library's functions.
pub fn is_blamed(
    _: &Recording,
    kind: &str,
    hold: impl FnOnce() -> i32,
    (waits, wait_leaf, wait): (&str, &str, impl Fn() -> i32 + Sync),
    (releases, release_leaf, release): (&str, &str, impl FnOnce() -> i32),
) {
    assert_eq!(hold(), 0);
    let start = Instant::now();
    let wall = blocked(|| assert_eq!(wait(), 0), || assert_eq!(release(), 0));
    let all = start.elapsed();

    let blamed = recorded("mutex", releases);
    blamed.is_of(WAITERS, wall);
    blamed.is_at(kind, release_leaf, release_leaf);
    assert_eq!(blamed.events, 1, "{blamed:?}");
    let waited = recorded("block", waits);
    // After the release, the waiters wait for one another.
    waited.is_of(WAITERS, all);
    waited.is_at(kind, wait_leaf, wait_leaf);
    // One event each: futex calls within glibc are not counted in addition.
    assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
}

macro_rules! blames {
    ($test:ident: $kind:literal, $lock:expr, $hold:ident, $waits:ident by $wait_leaf:literal,
     $releases:ident by $release_leaf:literal) => {
        #[test]
        fn $test() {
            let recording = Recording::all();
            let lock = $lock;
            is_blamed(
                &recording,
                $kind,
                || c::$hold(lock.get()),
                (stringify!($waits), $wait_leaf, || c::$waits(lock.get())),
                (stringify!($releases), $release_leaf, || {
                    c::$releases(lock.get())
                }),
            );
        }
    };
}

blames!(
    unlocking_a_mutex_is_charged_for_all_waiters: "mutex",
    Mutex::zeroed(), c_locks,
    c_waits by "pthread_mutex_lock", c_unlocks by "pthread_mutex_unlock"
);
blames!(
    a_time_limit_changes_nothing: "mutex",
    Mutex::zeroed(), c_locks,
    c_waits_timed by "pthread_mutex_timedlock", c_unlocks_timed by "pthread_mutex_unlock"
);
blames!(
    nor_does_a_clock: "mutex",
    Mutex::zeroed(), c_locks,
    c_waits_clocked by "pthread_mutex_clocklock", c_unlocks_clocked by "pthread_mutex_unlock"
);
blames!(
    a_recursive_mutex: "mutex",
    Mutex::of_kind(kind::RECURSIVE), c_locks,
    c_waits_recursive by "pthread_mutex_lock", c_unlocks_recursive by "pthread_mutex_unlock"
);
blames!(
    a_mutex_that_checks_for_errors: "mutex",
    Mutex::of_kind(kind::ERRORCHECK), c_locks,
    c_waits_checking by "pthread_mutex_lock", c_unlocks_checking by "pthread_mutex_unlock"
);
blames!(
    an_adaptive_mutex: "mutex",
    Mutex::of_kind(kind::ADAPTIVE), c_locks,
    c_waits_adaptive by "pthread_mutex_lock", c_unlocks_adaptive by "pthread_mutex_unlock"
);
blames!(
    a_mutex_that_inherits_priorities: "mutex",
    Mutex::of_kind(kind::INHERIT), c_locks,
    c_waits_inheriting by "pthread_mutex_lock", c_unlocks_inheriting by "pthread_mutex_unlock"
);
blames!(
    a_robust_mutex: "mutex",
    Mutex::of_kind(kind::ROBUST | kind::INHERIT), c_locks,
    c_waits_robust by "pthread_mutex_lock", c_unlocks_robust by "pthread_mutex_unlock"
);
blames!(
    a_writer_is_blamed_for_readers: "rwlock read",
    RwLock::zeroed(), c_writes,
    c_waits_to_read by "pthread_rwlock_rdlock", c_stops_writing by "pthread_rwlock_unlock"
);
blames!(
    a_writer_is_blamed_for_writers: "rwlock write",
    RwLock::zeroed(), c_writes,
    c_waits_to_write_after by "pthread_rwlock_wrlock",
    c_stops_writing_for_writers by "pthread_rwlock_unlock"
);
blames!(
    a_reader_is_blamed_for_writers: "rwlock write",
    RwLock::zeroed(), c_reads,
    c_waits_to_write by "pthread_rwlock_wrlock", c_stops_reading by "pthread_rwlock_unlock"
);
blames!(
    a_writer_is_blamed_for_readers_with_a_time_limit: "rwlock read",
    RwLock::zeroed(), c_writes,
    c_waits_to_read_timed by "pthread_rwlock_timedrdlock",
    c_stops_writing_timed by "pthread_rwlock_unlock"
);
blames!(
    a_reader_is_blamed_for_writers_with_a_time_limit: "rwlock write",
    RwLock::zeroed(), c_reads,
    c_waits_to_write_timed by "pthread_rwlock_timedwrlock",
    c_stops_reading_timed by "pthread_rwlock_unlock"
);
blames!(
    a_writer_is_blamed_for_readers_with_a_clock: "rwlock read",
    RwLock::zeroed(), c_writes,
    c_waits_to_read_clocked by "pthread_rwlock_clockrdlock",
    c_stops_writing_clocked by "pthread_rwlock_unlock"
);
blames!(
    a_reader_is_blamed_for_writers_with_a_clock: "rwlock write",
    RwLock::zeroed(), c_reads,
    c_waits_to_write_clocked by "pthread_rwlock_clockwrlock",
    c_stops_reading_clocked by "pthread_rwlock_unlock"
);

#[test]
fn a_release_without_waiters_is_not_charged() {
    let _recording = Recording::all();
    let mutex = Mutex::zeroed();
    for _ in 0..1000 {
        assert_eq!(c::c_locks(mutex.get()), 0);
        assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
    }
    assert_eq!(recorded("mutex", "c_unlocks_plainly").events, 0);
    assert_eq!(recorded("block", "c_locks").events, 0);
}

#[test]
fn trying_is_never_waiting() {
    let _recording = Recording::all();
    let mutex = Mutex::zeroed();
    assert_eq!(c::c_locks(mutex.get()), 0);
    for _ in 0..1000 {
        assert_eq!(c::c_tries(mutex.get()), libc::EBUSY);
    }
    assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
    assert_eq!(recorded("block", "c_tries").events, 0);
    assert_eq!(recorded("mutex", "c_unlocks_plainly").events, 0);
}
