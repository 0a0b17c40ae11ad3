//! The total waited for locks equals the total blamed on releases, to the nanosecond.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use plimsoll::profile::{self, Detail};
use plimsoll::sync::tokio::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};

use crate::tokio_sync::scene::{Recording, kind};
use crate::tokio_sync::tasks::runtimes;
use plimsoll_checks::profile::read_with_idle;

const TASKS: u64 = 8;
const TURNS: usize = 300;

/// A sequence of numbers, which depends only on the seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }
}

#[derive(Default)]
struct Locks {
    mutexes: [Arc<Mutex<(u64, u64)>>; 2],
    rwlocks: [Arc<RwLock<u64>>; 2],
}

/// Holds a lock for a while, sometimes until other tasks have run.
async fn hold(random: &mut Random) {
    match random.below(8) {
        0 => tokio::time::sleep(Duration::from_micros(random.below(50))).await,
        1..4 => tokio::task::yield_now().await,
        _ => {}
    }
    for _ in 0..random.below(500) {
        std::hint::spin_loop();
    }
}

async fn does_something(locks: &Locks, random: &mut Random) {
    let which = random.below(2) as usize;
    let (mutex, rwlock) = (&locks.mutexes[which], &locks.rwlocks[which]);
    match random.below(7) {
        0 => {
            let mut guard = mutex.lock().await;
            guard.0 += 1;
            hold(random).await;
            if which == 0 {
                drop(locks.mutexes[1].lock().await);
            }
        }
        1 => {
            let guard = mutex.clone().lock_owned().await;
            hold(random).await;
            drop(guard);
        }
        2 => {
            let mut guard = rwlock.write().await;
            *guard += 1;
            hold(random).await;
            let guard = RwLockWriteGuard::downgrade(guard);
            hold(random).await;
            drop(guard);
        }
        3 => {
            let guard = rwlock.write().await;
            hold(random).await;
            drop(guard);
        }
        4 => {
            let guard = rwlock.read().await;
            let guard = RwLockReadGuard::map(guard, |number| number);
            hold(random).await;
            drop(guard);
        }
        5 => {
            let guard = rwlock.read().await;
            black_box(*guard);
            hold(random).await;
        }
        _ => {
            drop(mutex.try_lock());
            drop(rwlock.try_read());
        }
    }
}

async fn works_at_random(locks: Arc<Locks>, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..TURNS {
        does_something(&locks, &mut random).await;
    }
    black_box("works_at_random");
}

/// Like [`works_at_random`], but abandons some waits.
async fn gives_up_at_random(locks: Arc<Locks>, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..TURNS {
        let patience = Duration::from_micros(random.below(500));
        let mut others = Random(random.below(1 << 40) + 1);
        tokio::select! {
            () = does_something(&locks, &mut others) => {}
            () = tokio::time::sleep(patience) => {}
        }
    }
    black_box("gives_up_at_random");
}

/// Returns the nanoseconds waited for and blamed on all locks: by the sums, and by the profiles.
fn of_locks() -> [(u64, u64); 2] {
    let sums = plimsoll::lock_stats();
    let [waited, blamed] = ["block", "mutex"].map(|profile| {
        let profile = read_with_idle(profile, Detail::Names);
        let samples = profile.sample.iter().filter(|sample| {
            matches!(
                kind(&profile, sample),
                "mutex" | "rwlock read" | "rwlock write"
            )
        });
        samples.map(|sample| sample.value[1] as u64).sum()
    });
    let nanoseconds = |sum: std::time::Duration| sum.as_nanos() as u64;
    let sums = (nanoseconds(sums.lock_waited), nanoseconds(sums.blamed));
    [sums, (waited, blamed)]
}

/// Runs `does` on a runtime of each kind. Checks that the added waits equal the added blame, for
/// these locks and for those inside the runtimes.
#[track_caller]
fn sums_agree(does: impl AsyncFn(Arc<Locks>)) {
    let lost = profile::lost_events();
    // Read before a runtime is made, because its threads wait for one another at once.
    let mut before = of_locks();
    for runtime in runtimes() {
        runtime.block_on(does(Arc::default()));
        // The runtime's threads have ended, and have recorded their waits.
        drop(runtime);
        let after = of_locks();
        for (before, after) in before.into_iter().zip(after) {
            let (waited, blamed) = (after.0 - before.0, after.1 - before.1);
            assert!(
                waited > 1_000_000,
                "{waited} ns are too few for a comparison"
            );
            assert_eq!(waited, blamed);
        }
        before = after;
    }
    assert_eq!(profile::lost_events(), lost);
}

async fn all<F: Future<Output = ()> + Send + 'static>(does: impl Fn(u64) -> F) {
    let seed = 0x9e37_79b9_7f4a_7c15u64;
    let tasks: Vec<_> = (1..=TASKS)
        .map(|task| tokio::spawn(does(seed.wrapping_mul(task))))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn every_wait_for_a_lock_is_charged() {
    let _recording = Recording::all();
    sums_agree(async |locks| all(|seed| works_at_random(locks.clone(), seed)).await);
}

#[test]
fn so_are_cancelled_waits() {
    let _recording = Recording::all();
    sums_agree(async |locks| all(|seed| gives_up_at_random(locks.clone(), seed)).await);
}

/// The runtime drops whole tasks at any point of their work, and no wait is left unaccounted.
#[test]
fn waits_of_aborted_tasks_are_charged_to_the_nanosecond() {
    let _recording = Recording::all();
    sums_agree(async |locks| {
        for round in 0..50 {
            let tasks: Vec<_> = (1..=TASKS)
                .map(|task| works_at_random(locks.clone(), (round * 97 + task) << 32))
                .map(tokio::spawn)
                .collect();
            tokio::time::sleep(Duration::from_millis(2)).await;
            for task in &tasks {
                task.abort();
            }
        }
        // Checks that all locks are free.
        for mutex in &locks.mutexes {
            drop(mutex.lock().await);
        }
        for rwlock in &locks.rwlocks {
            drop(rwlock.write().await);
        }
    });
}

/// Far more tasks than slots for waiting threads.
#[test]
fn twenty_thousand_tasks_may_wait_at_once() {
    const MANY: u32 = 20_000;
    let _recording = Recording::all();
    let lost = profile::lost_events();
    let mut before = plimsoll::lock_stats();
    for runtime in runtimes() {
        runtime.block_on(async {
            let mutex = Arc::new(Mutex::new(0));
            let gate = Arc::new(Semaphore::new(0));
            let guard = mutex.lock().await;
            let tasks: Vec<_> = (0..MANY)
                .map(|_| {
                    let (mutex, gate) = (mutex.clone(), gate.clone());
                    tokio::spawn(async move {
                        gate.add_permits(1);
                        *mutex.lock().await += 1;
                    })
                })
                .collect();
            drop(gate.acquire_many(MANY).await.unwrap());
            drop(guard);
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*mutex.lock().await, MANY);
        });
        drop(runtime);
        let after = plimsoll::lock_stats();
        assert!(after.lock_waits - before.lock_waits >= u64::from(MANY) / 2);
        assert_eq!(
            after.lock_waited - before.lock_waited,
            after.blamed - before.blamed
        );
        before = after;
    }
    assert_eq!(profile::lost_events().waits, lost.waits);
}
