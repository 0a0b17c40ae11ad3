//! The release of a lock is charged for its waiters.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use plimsoll::sync::{Condvar, Mutex, MutexGuard, RwLock};

use crate::sync::scene::{HELD, Recording, WAITERS, blocked, recorded};

/// Holds a lock until all threads wait, and some time longer, and releases it in a function with a
/// distinct name. Checks that the two profiles show the waiters and the charged release.
macro_rules! blames {
    ($test:ident: $kind:literal, $hold:expr, $waits:ident $wait:expr, $releases:ident,
     $wait_leaf:expr, $release_leaf:expr) => {
        #[test]
        fn $test() {
            // No function ends with a call, because a tail call leaves no frame.
            #[inline(never)]
            fn $waits<G>(lock: impl FnOnce() -> G) {
                drop(lock());
                black_box(());
            }
            #[inline(never)]
            fn $releases<G>(guard: G) {
                drop(black_box(guard));
                black_box(());
            }
            let _recording = Recording::all();
            let guard = $hold;
            let wall = blocked(|| $waits($wait), || $releases(guard));

            let blamed = recorded("mutex", stringify!($releases));
            blamed.is_of(WAITERS, wall);
            blamed.is_at($kind, $release_leaf.0, $release_leaf.1);
            assert_eq!(blamed.events, 1, "{blamed:?}");
            // One event each: the primitive and the one that it uses do not both record the wait.
            let waited = recorded("block", stringify!($waits));
            waited.is_of(WAITERS, wall);
            waited.is_at($kind, $wait_leaf.0, $wait_leaf.1);
            assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
        }
    };
}

static MUTEX: Mutex<()> = Mutex::new(());
blames!(
    unlocking_a_mutex_is_charged_for_all_waiters: "mutex",
    MUTEX.lock().unwrap(),
    waits_for_a_mutex || MUTEX.lock().unwrap(),
    unlocks_a_mutex,
    ("plimsoll_waits::sync::mutex::Mutex", "lock"),
    ("plimsoll_waits::sync::mutex::MutexGuard", "drop")
);

static READ: RwLock<()> = RwLock::new(());
blames!(
    a_writer_is_blamed_for_readers: "rwlock read",
    READ.write().unwrap(),
    waits_to_read || READ.read().unwrap(),
    stops_writing,
    ("plimsoll_waits::sync::rwlock::RwLock", "read"),
    ("plimsoll_waits::sync::rwlock::RwLockWriteGuard", "drop")
);

static WRITTEN: RwLock<()> = RwLock::new(());
blames!(
    a_reader_is_blamed_for_writers: "rwlock write",
    WRITTEN.read().unwrap(),
    waits_to_write || WRITTEN.write().unwrap(),
    stops_reading,
    ("plimsoll_waits::sync::rwlock::RwLock", "write"),
    ("plimsoll_waits::sync::rwlock::RwLockReadGuard", "drop")
);

#[cfg(feature = "lock_api")]
mod parking_lot {
    use super::*;
    use plimsoll::sync::lock_api::{RawMutex, RawRwLock};

    static MUTEX: lock_api::Mutex<RawMutex<parking_lot_0_12::RawMutex>, ()> =
        lock_api::Mutex::new(());
    blames!(
        unlocking_a_mutex_of_parking_lot_is_charged: "mutex",
        MUTEX.lock(),
        waits_for_parking_lot || MUTEX.lock(),
        unlocks_parking_lot,
        ("lock_api::mutex::Mutex", "lock"),
        ("lock_api::mutex::MutexGuard", "drop")
    );

    static READ: lock_api::RwLock<RawRwLock<parking_lot_0_12::RawRwLock>, ()> =
        lock_api::RwLock::new(());
    blames!(
        a_writer_of_parking_lot_is_blamed_for_readers: "rwlock read",
        READ.write(),
        waits_to_read_parking_lot || READ.read(),
        stops_writing_parking_lot,
        ("lock_api::rwlock::RwLock", "read"),
        ("lock_api::rwlock::RwLockWriteGuard", "drop")
    );

    static WRITTEN: lock_api::RwLock<RawRwLock<parking_lot_0_12::RawRwLock>, ()> =
        lock_api::RwLock::new(());
    blames!(
        a_reader_of_parking_lot_is_blamed_for_writers: "rwlock write",
        WRITTEN.read(),
        waits_to_write_parking_lot || WRITTEN.write(),
        stops_reading_parking_lot,
        ("lock_api::rwlock::RwLock", "write"),
        ("lock_api::rwlock::RwLockReadGuard", "drop")
    );

    static UPGRADED: lock_api::RwLock<RawRwLock<parking_lot_0_12::RawRwLock>, ()> =
        lock_api::RwLock::new(());
    blames!(
        an_upgradable_reader_is_charged_for_upgraders: "rwlock write",
        UPGRADED.upgradable_read(),
        waits_for_the_upgradable || UPGRADED.write(),
        gives_up_the_upgradable,
        ("lock_api::rwlock::RwLock", "write"),
        ("lock_api::rwlock::RwLockUpgradableReadGuard", "drop")
    );
}

#[inline(never)]
fn waits_for_news<'a>(news: &Condvar, guard: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
    let guard = news.wait_while(guard, |is_there| !*is_there).unwrap();
    black_box(guard)
}

#[inline(never)]
fn brings_news(news: &Condvar, is_there: &Mutex<bool>) {
    *is_there.lock().unwrap() = true;
    news.notify_all();
    black_box(());
}

#[test]
fn waits_for_a_condition_are_charged_to_no_thread() {
    let _recording = Recording::all();
    let (news, is_there) = (Condvar::new(), Mutex::new(false));
    let wall = blocked(
        || drop(waits_for_news(&news, is_there.lock().unwrap())),
        || brings_news(&news, &is_there),
    );

    let waited = recorded("block", "waits_for_news");
    waited.is_of(WAITERS, wall);
    waited.is_at("condvar", "plimsoll_waits::sync::condvar::Condvar", "wait");
    assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
    for function in ["brings_news", "waits_for_news"] {
        let blamed = recorded("mutex", function);
        let most = HELD / 2 * WAITERS as u32;
        assert!(blamed.delay < most, "{function}: {blamed:?}");
    }
}

#[inline(never)]
fn waits_for_the_waiting(mutex: &Mutex<()>) {
    drop(mutex.lock().unwrap());
    black_box(());
}

#[inline(never)]
fn gives_up_by_waiting<'a>(condition: &Condvar, guard: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
    let short = Duration::from_millis(1);
    let (guard, _) = condition.wait_timeout(guard, short).unwrap();
    black_box(guard)
}

#[test]
fn waiting_for_a_condition_is_blamed_for_giving_up_the_mutex() {
    let _recording = Recording::all();
    let (condition, mutex) = (Condvar::new(), Mutex::new(()));
    let guard = mutex.lock().unwrap();
    let wall = blocked(
        || waits_for_the_waiting(&mutex),
        // The wait takes the lock again and releases it, which does not matter here.
        || drop(gives_up_by_waiting(&condition, guard)),
    );

    let blamed = recorded("mutex", "gives_up_by_waiting");
    blamed.is_of(WAITERS, wall);
    blamed.is_at(
        "mutex",
        "plimsoll_waits::sync::condvar::Condvar",
        "wait_timeout",
    );
}

#[inline(never)]
fn gives_up_without_waiters(mutex: &Mutex<()>) {
    drop(mutex.lock().unwrap());
    black_box(());
}

#[test]
fn a_release_without_waiters_is_not_charged() {
    let _recording = Recording::all();
    let mutex = Mutex::new(());
    for _ in 0..1000 {
        gives_up_without_waiters(&mutex);
    }
    thread::scope(|scope| {
        scope.spawn(|| gives_up_without_waiters(&mutex));
    });
    assert_eq!(recorded("mutex", "gives_up_without_waiters").events, 0);
    assert_eq!(recorded("block", "gives_up_without_waiters").events, 0);
}
