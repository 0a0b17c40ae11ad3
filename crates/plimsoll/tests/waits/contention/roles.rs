//! Go's test of the runtime's locks: two roles in turn contend once for each of many locks.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contention::scene::{Moment, alone, came, thread_id, until_it_waits};

/// The times that one role measures, for comparison with the profile of the other.
#[derive(Default)]
struct Known {
    /// How long the role held locks for which it knew the other to wait.
    contended: Duration,
    /// How long the role's own calls of `lock` took.
    locking: Duration,
}

#[inline(never)]
fn short(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce()) {
    hold(lock, known, until_contended, Duration::from_micros(100));
    black_box(());
}

#[inline(never)]
fn long(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce()) {
    hold(lock, known, until_contended, Duration::from_micros(400));
    black_box(());
}

/// Inlined, so that the function of each role is in the stack by its own name.
#[inline(always)]
fn hold(lock: &Mutex<u8>, known: &mut Known, until_contended: impl FnOnce(), time: Duration) {
    let guard = lock.lock().unwrap();
    until_contended();
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
    known.contended += start.elapsed();
    drop(guard);
}

fn wait(lock: &Mutex<u8>, known: &mut Known) {
    let start = Instant::now();
    let guard = lock.lock().unwrap();
    known.locking += start.elapsed();
    drop(guard);
}

#[test]
fn two_hundred_contentions_are_two_hundred_events_of_their_causes() {
    const LOCKS: usize = 200;
    type Role = fn(&Mutex<u8>, &mut Known, Box<dyn FnOnce() + '_>);
    let _alone = alone();
    let before = Moment::now();
    let locks: Vec<Mutex<u8>> = (0..LOCKS).map(|_| Mutex::new(0)).collect();
    let turn = AtomicUsize::new(0);
    let wanted = AtomicUsize::new(0);
    let threads = [AtomicI32::new(0), AtomicI32::new(0)];
    let mut known: [Known; 2] = Default::default();
    thread::scope(|scope| {
        for (me, known) in known.iter_mut().enumerate() {
            let (locks, turn, wanted, threads) = (&locks, &turn, &wanted, &threads);
            scope.spawn(move || {
                let role: Role = match me {
                    0 => |lock, known, until| short(lock, known, until),
                    _ => |lock, known, until| long(lock, known, until),
                };
                threads[me].store(thread_id(), Ordering::Release);
                for (at, lock) in locks.iter().enumerate() {
                    let until = |reached: &AtomicUsize, number: usize| {
                        while reached.load(Ordering::Acquire) < number {
                            thread::yield_now();
                        }
                    };
                    until(turn, at);
                    if at % 2 == me {
                        let contended = || {
                            wanted.store(at + 1, Ordering::Release);
                            let mut other = 0;
                            while other == 0 {
                                other = threads[1 - me].load(Ordering::Acquire);
                            }
                            until_it_waits(other);
                        };
                        role(lock, known, Box::new(contended));
                    } else {
                        until(wanted, at + 1);
                        wait(lock, known);
                        turn.store(at + 1, Ordering::Release);
                    }
                }
            });
        }
    });
    let after = Moment::now();
    for (me, name) in ["roles::short", "roles::long"].into_iter().enumerate() {
        let (events, blamed) = came(&before.mutex, &after.mutex, name);
        assert_eq!(events as usize, LOCKS / 2, "{name}");
        let least = known[me].contended.as_nanos() as i64;
        let most = known[1 - me].locking.as_nanos() as i64;
        assert!(
            least <= blamed && blamed <= most,
            "{name}: {blamed} ns, not {least} to {most}"
        );
    }
}
