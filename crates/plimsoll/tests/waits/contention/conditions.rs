//! Waits for conditions, which have no owner.

use std::hint::black_box;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Instant;

use crate::contention::scene::{HELD, Moment, Waiter, alone, came, sum};
use plimsoll_testkit::pprof::Profile;

#[test]
fn waits_for_conditions_are_charged_to_no_thread() {
    let _alone = alone();
    let before = Moment::now();

    #[inline(never)]
    fn std_notifier(pair: &(Mutex<bool>, Condvar), it: &Waiter) {
        it.until_it_waits();
        thread::sleep(HELD);
        let mut ready = pair.0.lock().unwrap();
        *ready = true;
        // Notifies with the lock held, so the woken thread has to wait for the lock as well.
        pair.1.notify_all();
        drop(ready);
        black_box(());
    }
    let pair = (Mutex::new(false), Condvar::new());
    let (it, begun) = (Waiter::default(), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            it.is_here();
            let mut ready = pair.0.lock().unwrap();
            while !*ready {
                ready = pair.1.wait(ready).unwrap();
            }
        });
        std_notifier(&pair, &it);
    });
    let mut most = begun.elapsed() - HELD;

    #[inline(never)]
    fn parking_notifier(
        pair: &(parking_lot_0_12::Mutex<bool>, parking_lot_0_12::Condvar),
        it: &Waiter,
    ) {
        it.until_it_waits();
        thread::sleep(HELD);
        let mut ready = pair.0.lock();
        *ready = true;
        // With the lock held, parking_lot moves the waiter to the queue of the lock.
        pair.1.notify_all();
        drop(ready);
        black_box(());
    }
    let pair = (
        parking_lot_0_12::Mutex::new(false),
        parking_lot_0_12::Condvar::new(),
    );
    let (it, begun) = (Waiter::default(), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            it.is_here();
            let mut ready = pair.0.lock();
            while !*ready {
                pair.1.wait(&mut ready);
            }
        });
        parking_notifier(&pair, &it);
    });
    most += begun.elapsed() - HELD;

    let after = Moment::now();
    for notifier in ["std_notifier", "parking_notifier"] {
        let (_, blamed) = came(&before.mutex, &after.mutex, notifier);
        // The notifier is charged at most for the time in which it still held the lock. The length
        // of that time depends on the machine.
        let most = (most + HELD / 2).as_nanos() as i64;
        assert!(blamed < most, "{notifier}: {blamed} ns, of {most}");
    }
    let conditions = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile.label(sample, "kind") == Some("condvar")
        })
    };
    let (waits, waited) = conditions(&after.block);
    let (waits_before, waited_before) = conditions(&before.block);
    assert!(waits - waits_before >= 2);
    assert!(waited - waited_before >= 2 * HELD.as_nanos() as i64);
}
