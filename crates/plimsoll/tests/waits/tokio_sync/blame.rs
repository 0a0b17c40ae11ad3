//! The release of a lock is charged for the tasks that waited for it.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use plimsoll::sync::tokio::{Mutex, RwLock};
use plimsoll::sync::tokio::{OwnedMutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::tokio_sync::scene::{HELD, Recording, WAITERS, blocked};
use crate::tokio_sync::tasks::{on_each_runtime, recorded, waiting};

/// Holds a lock until all tasks wait, and some time longer, and releases it in a function with a
/// distinct name. Checks that the two profiles show the waiters and the charged release.
macro_rules! blames {
    ($test:ident: $kind:literal, $hold:expr, $waits:ident $wait:expr,
     $releases:ident $release:expr, $wait_leaf:expr, $release_leaf:expr) => {
        #[test]
        fn $test() {
            async fn $waits() {
                drop($wait.await);
                black_box(stringify!($waits));
            }
            // No function ends with a call, because a tail call leaves no frame.
            #[inline(never)]
            fn $releases<G>(guard: G, release: impl FnOnce(G)) {
                release(black_box(guard));
                // Makes the body unique, because the compiler would merge equal functions.
                black_box(stringify!($releases));
            }
            let _recording = Recording::all();
            let wall = on_each_runtime(async || {
                let guard = $hold.await;
                waiting($waits, || $releases(guard, $release)).await
            });

            let blamed = recorded("mutex", stringify!($releases));
            blamed.is_of(2 * WAITERS, wall.held);
            blamed.is_at($kind, $release_leaf.0, $release_leaf.1);
            assert_eq!(blamed.events, 2, "{blamed:?}");
            let waited = recorded("block", stringify!($waits));
            waited.is_of(2 * WAITERS, wall.done);
            waited.is_at($kind, $wait_leaf.0, $wait_leaf.1);
            assert_eq!(waited.events, 2 * WAITERS as i64, "{waited:?}");
        }
    };
}

const MUTEX_PATH: &str = "plimsoll_waits::sync::tokio::mutex::Mutex";
const RWLOCK_PATH: &str = "plimsoll_waits::sync::tokio::rwlock::RwLock";

static MUTEX: Mutex<()> = Mutex::const_new(());
blames!(
    unlocking_a_mutex_is_charged_for_all_waiting_tasks: "mutex",
    MUTEX.lock(),
    waits_for_a_mutex MUTEX.lock(),
    unlocks_a_mutex drop,
    (MUTEX_PATH, "lock"),
    ("plimsoll_waits::sync::tokio::mutex::MutexGuard", "drop")
);

static OWNED: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);
blames!(
    unlocking_an_owned_mutex_is_charged: "mutex",
    OWNED.clone().lock_owned(),
    waits_to_own_a_mutex OWNED.clone().lock_owned(),
    unlocks_an_owned_mutex drop::<OwnedMutexGuard<()>>,
    (MUTEX_PATH, "lock_owned"),
    ("plimsoll_waits::sync::tokio::mutex::OwnedMutexGuard", "drop")
);

static READ: RwLock<()> = RwLock::const_new(());
blames!(
    a_writer_is_blamed_for_readers: "rwlock read",
    READ.write(),
    waits_to_read READ.read(),
    stops_writing drop::<RwLockWriteGuard<'_, ()>>,
    (RWLOCK_PATH, "read"),
    ("plimsoll_waits::sync::tokio::rwlock::guards::RwLockWriteGuard", "drop")
);

static WRITTEN: RwLock<()> = RwLock::const_new(());
blames!(
    a_reader_is_blamed_for_writers: "rwlock write",
    WRITTEN.read(),
    waits_to_write WRITTEN.write(),
    stops_reading drop::<RwLockReadGuard<'_, ()>>,
    (RWLOCK_PATH, "write"),
    ("plimsoll_waits::sync::tokio::rwlock::guards::RwLockReadGuard", "drop")
);

async fn waits_to_read_too(lock: Arc<RwLock<()>>) {
    drop(lock.read().await);
    black_box("waits_to_read_too");
}

#[inline(never)]
fn goes_on_reading(guard: RwLockWriteGuard<'_, ()>) -> RwLockReadGuard<'_, ()> {
    black_box(RwLockWriteGuard::downgrade(black_box(guard)))
}

#[test]
fn a_writer_that_goes_on_reading_is_blamed_for_readers() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let lock = Arc::new(RwLock::new(()));
        let guard = lock.write().await;
        let mut reading = None;
        let wait = || waits_to_read_too(lock.clone());
        waiting(wait, || reading = Some(goes_on_reading(guard))).await
    });
    let blamed = recorded("mutex", "goes_on_reading");
    blamed.is_of(2 * WAITERS, wall.held);
    blamed.is_at(
        "rwlock read",
        "plimsoll_waits::sync::tokio::rwlock::guards::RwLockWriteGuard",
        "downgrade",
    );
    assert_eq!(blamed.events, 2, "{blamed:?}");
}

#[inline(never)]
fn lets_threads_go<G>(guard: G) {
    drop(black_box(guard));
    black_box("lets_threads_go");
}

#[inline(never)]
fn waits_as_a_thread(mutex: &Mutex<()>) {
    drop(black_box(mutex.blocking_lock()));
    black_box("waits_as_a_thread");
}

/// One event each: the sleep of the thread is not recorded in addition.
#[test]
fn threads_wait_for_tasks_locks() {
    let _recording = Recording::all();
    let mutex = Mutex::new(());
    let (guard, start) = (mutex.blocking_lock(), Instant::now());
    let wall = blocked(|| waits_as_a_thread(&mutex), || lets_threads_go(guard));
    let done = start.elapsed();
    let blamed = recorded("mutex", "lets_threads_go");
    blamed.is_of(WAITERS, wall);
    let waited = recorded("block", "waits_as_a_thread");
    waited.is_of(WAITERS, done);
    waited.is_at("mutex", MUTEX_PATH, "blocking_lock");
    assert_eq!(waited.events, WAITERS as i64, "{waited:?}");
}

#[inline(never)]
fn gives_up_without_waiters(mutex: &Mutex<()>) {
    drop(mutex.try_lock().unwrap());
    assert!(mutex.try_lock().is_ok());
    let guard = mutex.try_lock().unwrap();
    // A failed `try_lock` does not count as a wait.
    mutex.try_lock().unwrap_err();
    drop(guard);
    black_box("gives_up_without_waiters");
}

#[test]
fn a_release_without_waiters_is_not_charged() {
    let _recording = Recording::all();
    let mutex = Mutex::new(());
    for _ in 0..1000 {
        gives_up_without_waiters(&mutex);
    }
    assert_eq!(recorded("mutex", "gives_up_without_waiters").events, 0);
    assert_eq!(recorded("block", "gives_up_without_waiters").events, 0);
}

async fn panics_with_the_lock(mutex: Arc<Mutex<()>>) {
    let _guard = mutex.lock().await;
    tokio::time::sleep(HELD).await;
    std::panic::resume_unwind(Box::new("a panic"));
}

/// As with tokio's locks, a panic releases the lock and does not poison it.
#[test]
fn a_panic_is_to_blame_as_well() {
    let _recording = Recording::all();
    on_each_runtime(async || {
        let mutex = Arc::new(Mutex::new(()));
        let holder = tokio::spawn(panics_with_the_lock(mutex.clone()));
        while mutex.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        drop(mutex.lock().await);
        assert!(holder.await.unwrap_err().is_panic());
        HELD
    });
    let blamed = recorded("mutex", "panics_with_the_lock");
    assert_eq!((blamed.events, blamed.kinds), (2, vec!["mutex".into()]));
    assert!(blamed.delay > HELD);
}
