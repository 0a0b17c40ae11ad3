//! The total waited for locks equals the total blamed on releases, to the nanosecond.

use std::hint::black_box;
use std::thread;

use plimsoll::profile;
use plimsoll::sync::{Condvar, Mutex, RwLock};

use crate::sync::scene::{Recording, has, kind};
use plimsoll_checks::profile::read_profile;

const THREADS: u64 = 4;
const TURNS: usize = 1000;

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
    mutexes: [Mutex<u64>; 2],
    rwlocks: [RwLock<u64>; 2],
    condition: Condvar,
    #[cfg(feature = "lock_api")]
    parking_lot:
        lock_api::Mutex<plimsoll::sync::lock_api::RawMutex<parking_lot_0_12::RawMutex>, u64>,
    #[cfg(feature = "lock_api")]
    upgradable:
        lock_api::RwLock<plimsoll::sync::lock_api::RawRwLock<parking_lot_0_12::RawRwLock>, u64>,
}

/// Holds a lock for a while, sometimes long enough for other threads to sleep.
fn hold(random: &mut Random) {
    if random.below(4) == 0 {
        thread::yield_now();
    }
    for _ in 0..random.below(2000) {
        std::hint::spin_loop();
    }
}

#[inline(never)]
fn works_at_random(locks: &Locks, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..TURNS {
        let which = random.below(2) as usize;
        match random.below(if cfg!(feature = "lock_api") { 8 } else { 5 }) {
            0 | 1 => {
                let mut guard = locks.mutexes[which].lock().unwrap();
                *guard += 1;
                hold(&mut random);
                // The order of the two mutexes varies.
                if which == 0 {
                    drop(locks.mutexes[1].lock().unwrap());
                }
            }
            2 => {
                let mut guard = locks.rwlocks[which].write().unwrap();
                *guard += 1;
                hold(&mut random);
            }
            3 => {
                let guard = locks.rwlocks[which].read().unwrap();
                black_box(*guard);
                hold(&mut random);
            }
            4 => {
                let guard = locks.mutexes[0].lock().unwrap();
                let short = std::time::Duration::from_micros(random.below(100));
                let (guard, _) = locks.condition.wait_timeout(guard, short).unwrap();
                locks.condition.notify_all();
                drop(guard);
            }
            #[cfg(feature = "lock_api")]
            5 => {
                let mut guard = locks.parking_lot.lock();
                *guard += 1;
                hold(&mut random);
                lock_api::MutexGuard::bump(&mut guard);
                hold(&mut random);
            }
            #[cfg(feature = "lock_api")]
            6 => {
                use lock_api::RwLockUpgradableReadGuard as Upgradable;
                let guard = locks.upgradable.upgradable_read();
                hold(&mut random);
                let mut guard = Upgradable::upgrade(guard);
                *guard += 1;
                hold(&mut random);
                let guard = lock_api::RwLockWriteGuard::downgrade(guard);
                hold(&mut random);
                lock_api::RwLockReadGuard::unlock_fair(guard);
            }
            _ => {
                #[cfg(feature = "lock_api")]
                black_box(*locks.upgradable.read());
                hold(&mut random);
            }
        }
    }
    black_box(());
}

/// Returns the nanoseconds for locks in stacks with `works_at_random`.
fn of_locks(profile: &str) -> i64 {
    let profile = read_profile(profile);
    let samples = profile.sample.iter().filter(|sample| {
        has(&profile, sample, "works_at_random")
            && matches!(
                kind(&profile, sample),
                "mutex" | "rwlock read" | "rwlock write"
            )
    });
    samples.map(|sample| sample.value[1]).sum()
}

#[test]
fn every_wait_for_a_lock_is_charged() {
    let _recording = Recording::all();
    let lost = profile::lost_events();
    let locks = Locks::default();
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let locks = &locks;
            scope
                .spawn(move || works_at_random(locks, 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed)));
        }
    });
    assert_eq!(profile::lost_events(), lost);
    let (waited, blamed) = (of_locks("block"), of_locks("mutex"));
    assert!(
        waited > 1_000_000,
        "{waited} ns are too few for a comparison"
    );
    assert_eq!(waited, blamed);
}
