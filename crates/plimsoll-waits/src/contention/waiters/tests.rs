use super::*;
use std::sync::atomic::AtomicBool;

fn stamp(waiters: &Waiters, key: usize, now: u64) -> Vec<u64> {
    let mut delays = Vec::new();
    waiters.stamp(key, key, now, |_, delay| delays.push(delay));
    delays.sort();
    delays
}

#[test]
fn a_release_is_charged_with_time_not_charged_before() {
    let waiters = Box::new(Waiters::new());
    let first = waiters.enter(0x1000, WaitKind::Mutex, 100).unwrap();
    let second = waiters.enter(0x1000, WaitKind::Mutex, 130).unwrap();
    let other = waiters.enter(0x1004, WaitKind::Mutex, 140).unwrap();
    assert_eq!(stamp(&waiters, 0x1000, 150), [20, 50]);
    assert_eq!(waiters.leave(first), 150);
    assert_eq!(stamp(&waiters, 0x1000, 160), [10]);
    // A clock is not set back.
    assert_eq!(stamp(&waiters, 0x1000, 155), [0; 0]);
    assert_eq!(waiters.leave(second), 160);
    assert_eq!(stamp(&waiters, 0x1000, 200), [0; 0]);
    assert_eq!(waiters.leave(other), 140);
    assert_eq!(waiters.occupied(), 0);
    assert!(
        waiters
            .slots
            .iter()
            .all(|slot| slot.home.load(Ordering::Relaxed) == 0)
    );
}

#[test]
fn a_word_leads_to_its_lock() {
    let waiters = Box::new(Waiters::new());
    let lock = waiters.enter(0x5000, WaitKind::Mutex, 1).unwrap();
    let alias = waiters.enter_alias(0x7f00_0000_2000, 0x5000).unwrap();
    assert_eq!(stamp(&waiters, 0x7f00_0000_2004, 5), [0; 0]);
    assert_eq!(stamp(&waiters, 0x7f00_0000_2000, 9), [8]);
    waiters.leave(alias);
    waiters.leave(lock);
    assert_eq!(stamp(&waiters, 0x7f00_0000_2000, 12), [0; 0]);
}

#[test]
fn the_second_word_of_a_readers_writer_lock_leads_to_the_first() {
    let waiters = Box::new(Waiters::new());
    let mut delays = Vec::new();
    // Once with both words in one cache line, once in two.
    for first in [0x1000, 0x103c] {
        let writer = waiters.enter(first, WaitKind::RwLockWrite, 10).unwrap();
        let mutex = waiters.enter(first, WaitKind::Mutex, 10).unwrap();
        waiters.stamp(first + 4, first, 30, |kind, delay| {
            delays.push((kind, delay))
        });
        waiters.leave(writer);
        waiters.leave(mutex);
    }
    assert_eq!(delays, [(WaitKind::RwLockWrite, 20); 2]);
}

#[test]
fn a_stamp_can_be_limited_to_one_kind_of_wait() {
    let waiters = Box::new(Waiters::new());
    let mut delays = Vec::new();
    let reader = waiters.enter(0x1000, WaitKind::RwLockRead, 10).unwrap();
    let writer = waiters.enter(0x1000, WaitKind::RwLockWrite, 10).unwrap();
    waiters.stamp_kind(0x1000, WaitKind::RwLockWrite, 30, |kind, delay| {
        delays.push((kind, delay))
    });
    assert_eq!(delays, [(WaitKind::RwLockWrite, 20)]);
    assert_eq!((waiters.leave(reader), waiters.leave(writer)), (10, 30));
}

#[test]
fn a_waiter_without_a_slot_is_counted_and_harmless() {
    let waiters = Box::new(Waiters::new());
    let places: Vec<_> = (0..FARTHEST as u64)
        .map(|at| waiters.enter(0x4000, WaitKind::Mutex, at).unwrap())
        .collect();
    assert!(waiters.enter(0x4000, WaitKind::Mutex, 0).is_none());
    assert_eq!(waiters.lost.load(Ordering::Relaxed), 1);
    assert_eq!(stamp(&waiters, 0x4000, 10_000).len(), FARTHEST);
    for place in places {
        assert_eq!(waiters.leave(place), 10_000);
    }
    assert!(waiters.enter(0x4000, WaitKind::Mutex, 0).is_some());
}

/// Two threads wait repeatedly, in a table with few slots; two others stamp. The sum of the charges
/// equals the sum of the waits, to the nanosecond, whichever slots were used. The threads wait until
/// both others have charged: with few processors, these may run late.
#[test]
fn every_nanosecond_is_charged_exactly_once() {
    let waiters = Box::new(Waiters::new());
    let clock = AtomicU64::new(1);
    let done = AtomicBool::new(false);
    let charging = AtomicU64::new(0);
    let (waited, charged) = std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..2)
            .map(|of| {
                let (waiters, clock, charging) = (&waiters, &clock, &charging);
                scope.spawn(move || {
                    let (mut waited, mut turn) = (0, 0);
                    while turn < 200_000 || charging.load(Ordering::Relaxed) < 2 {
                        turn += 1;
                        let start = clock.fetch_add(1, Ordering::Relaxed);
                        let key = 0x1000 + 4 * ((turn + of) % 3);
                        let place = waiters.enter(key, WaitKind::Mutex, start).unwrap();
                        waited += waiters.leave(place) - start;
                    }
                    waited
                })
            })
            .collect();
        let waking: Vec<_> = (0..2)
            .map(|_| {
                let (waiters, clock, done) = (&waiters, &clock, &done);
                let charging = &charging;
                scope.spawn(move || {
                    let mut charged = 0;
                    while !done.load(Ordering::Relaxed) {
                        for key in [0x1000, 0x1004, 0x1008] {
                            let now = clock.fetch_add(1, Ordering::Relaxed);
                            waiters.stamp(key, key, now, |_, delay| {
                                charging.fetch_add(u64::from(charged == 0), Ordering::Relaxed);
                                charged += delay;
                            });
                        }
                    }
                    charged
                })
            })
            .collect();
        let waited: u64 = waiting
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        done.store(true, Ordering::Relaxed);
        let charged: u64 = waking
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum();
        (waited, charged)
    });
    assert_eq!(waited, charged);
}

#[test]
fn the_child_of_a_fork_waits_for_nothing() {
    let waiters = Box::new(Waiters::new());
    let place = waiters.enter(0x1000, WaitKind::Mutex, 1).unwrap();
    waiters.after_fork_in_child();
    assert_eq!(stamp(&waiters, 0x1000, 9), [0; 0]);
    waiters.leave(place);
    assert_eq!(waiters.occupied(), 0);
    let place = waiters.enter(0x1000, WaitKind::Mutex, 1).unwrap();
    assert_eq!(stamp(&waiters, 0x1000, 9), [8]);
    waiters.leave(place);
}
