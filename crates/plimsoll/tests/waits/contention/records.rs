//! The records of `block` and `mutex`, read from code.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll::profile::{self, Detail, Snapshot, frames};

use crate::contention::scene::{HELD, Moment, Waiter, alone};

#[inline(never)]
fn holds(mutex: &Mutex<()>, is_held: &AtomicBool, waiter: &Waiter) {
    let guard = mutex.lock().unwrap();
    is_held.store(true, Ordering::Release);
    waiter.until_it_waits();
    thread::sleep(HELD);
    drop(guard);
    // Prevents a tail call, which would leave no frame.
    std::hint::black_box(());
}

fn delays(snapshot: &Snapshot, kind: &str) -> (i64, Duration) {
    let records = snapshot
        .records()
        .filter(|record| record.kind() == Some(kind));
    records.fold((0, Duration::ZERO), |(count, delay), record| {
        let contentions = record.value("contentions").expect("mutex has it");
        (
            count + contentions,
            delay + record.delay().expect("mutex has it"),
        )
    })
}

#[test]
fn a_contention_is_one_record_with_its_stack_and_delay() {
    let _alone = alone();
    let _quiet = Moment::quiet();
    let mutex_profile = profile::lookup("mutex").unwrap();
    let before = (mutex_profile.snapshot(), plimsoll::lock_stats());
    let (mutex, waiter) = (Mutex::new(()), Waiter::default());
    thread::scope(|scope| {
        let held = mutex.lock().unwrap();
        scope.spawn(|| {
            waiter.is_here();
            drop(mutex.lock().unwrap());
        });
        waiter.until_it_waits();
        drop(held);
    });
    let (is_held, waiter) = (AtomicBool::new(false), Waiter::default());
    thread::scope(|scope| {
        scope.spawn(|| holds(&mutex, &is_held, &waiter));
        while !is_held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        waiter.is_here();
        drop(mutex.lock().unwrap());
    });
    let after = (mutex_profile.snapshot(), plimsoll::lock_stats());
    let delta = after.0.since(&before.0).unwrap();
    let blamed = after.1.blamed - before.1.blamed;
    assert_eq!(delays(&delta, "mutex"), (2, blamed));
    assert!(blamed >= HELD);
    let in_holds = delta.records().filter(|record| {
        let frames = frames(record.stack(), Detail::Names);
        let mut functions = frames.into_iter().filter_map(|frame| frame.function);
        functions.any(|function| function.ends_with("records::holds"))
    });
    let values: Vec<_> = in_holds.map(|record| record.values().to_vec()).collect();
    assert_eq!(values.len(), 1, "{values:?}");
    assert_eq!(values[0][0], 1);
}
