//! The total blamed on releases equals the total waited.

use std::hint::black_box;
use std::sync::{Mutex, RwLock};
use std::thread;

use crate::contention::scene::{Moment, all_blamed, all_waited, alone, is_lock, sum};

/// Several threads do random work on several locks of all kinds.
#[test]
fn blame_equals_waits_to_the_nanosecond() {
    let _alone = alone();
    let before = Moment::quiet();
    for (round, threads) in [2, 4, 12].into_iter().enumerate() {
        let mutexes: [Mutex<u64>; 2] = Default::default();
        let rwlocks: [RwLock<u64>; 2] = Default::default();
        let parking_mutexes: [parking_lot_0_12::Mutex<u64>; 2] = Default::default();
        let parking_rwlock = parking_lot_0_13::RwLock::new(0u64);
        thread::scope(|scope| {
            for number in 0..threads {
                let (mutexes, rwlocks) = (&mutexes, &rwlocks);
                let (parking_mutexes, parking_rwlock) = (&parking_mutexes, &parking_rwlock);
                scope.spawn(move || {
                    let mut random = (1 + number + 100 * round) as u64;
                    for _ in 0..2_000 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let pick = (random >> 33) as usize;
                        let busy = || {
                            if pick % 7 == 0 {
                                thread::yield_now();
                            }
                        };
                        match pick % 6 {
                            0 => {
                                let mut guard = mutexes[pick / 6 % 2].lock().unwrap();
                                *guard += 1;
                                busy();
                            }
                            1 => {
                                let mut guard = rwlocks[pick / 6 % 2].write().unwrap();
                                *guard += 1;
                                busy();
                            }
                            2 => {
                                let guard = rwlocks[pick / 6 % 2].read().unwrap();
                                black_box(*guard);
                                busy();
                            }
                            3 => {
                                let mut guard = parking_mutexes[pick / 6 % 2].lock();
                                *guard += 1;
                                busy();
                            }
                            4 => {
                                let mut guard = parking_rwlock.write();
                                *guard += 1;
                                busy();
                            }
                            _ => {
                                let guard = parking_rwlock.read();
                                black_box(*guard);
                                busy();
                            }
                        }
                    }
                });
            }
        });
    }
    let after = Moment::quiet();
    assert_eq!(all_blamed(&before, &after), all_waited(&before, &after));
    let (releases, _) = sum(&after.mutex, |_, _| true);
    let (waits, _) = sum(&after.block, is_lock);
    let (releases_before, _) = sum(&before.mutex, |_, _| true);
    let (waits_before, _) = sum(&before.block, is_lock);
    assert!(releases > releases_before, "no thread had to wait");
    assert!(waits > waits_before);
    assert_eq!(plimsoll::profile::lost_events().waits, 0);
}
