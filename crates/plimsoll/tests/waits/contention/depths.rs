//! Stacks that are deeper than the default of 128 frames.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use plimsoll::profile::Detail;

use crate::contention::scene::{Waiter, alone};
use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof::{Sample, is_thread_entry};

/// The default depth.
const DEPTH: usize = 128;

/// The number of recursive calls.
const LEVELS: usize = 400;

/// Calls itself that many times, and then `work`.
#[inline(never)]
fn descends(levels: usize, work: &dyn Fn()) {
    let padding = black_box([levels; 2]);
    if levels == 0 {
        work();
    } else {
        descends(levels - 1, work);
    }
    black_box(padding);
}

#[inline(never)]
fn waits_far_down(lock: &Mutex<()>, waiter: &Waiter) {
    descends(LEVELS, &|| {
        waiter.is_here();
        drop(lock.lock().unwrap());
    });
    black_box(());
}

#[inline(never)]
fn releases_far_down(lock: &Mutex<()>, is_held: &AtomicBool, waiter: &Waiter) {
    descends(LEVELS, &|| {
        let guard = lock.lock().unwrap();
        is_held.store(true, Ordering::Release);
        waiter.until_it_waits();
        drop(guard);
    });
    black_box(());
}

#[test]
fn deep_stacks_have_their_roots_in_both_profiles() {
    let _alone = alone();
    let (lock, is_held, waiter) = (Mutex::new(()), AtomicBool::new(false), Waiter::default());
    thread::scope(|scope| {
        scope.spawn(|| releases_far_down(&lock, &is_held, &waiter));
        while !is_held.load(Ordering::Acquire) {
            thread::yield_now();
        }
        scope.spawn(|| waits_far_down(&lock, &waiter));
    });
    for (name, root) in [
        ("block", "depths::waits_far_down"),
        ("mutex", "depths::releases_far_down"),
    ] {
        let profile = read_with_idle(name, Detail::Names);
        let has_root = |sample: &&Sample| {
            let mut names = profile.names(sample).into_iter();
            names.any(|function| function.ends_with(root))
        };
        let deep: Vec<_> = profile.sample.iter().filter(has_root).collect();
        assert!(!deep.is_empty(), "{name}: no stack has {root}");
        for sample in deep {
            let names = profile.names(sample);
            assert_eq!(sample.location_id.len(), DEPTH, "{name}: {names:?}");
            let left_out = names.iter().filter(|&&frame| frame == "[frames left out]");
            assert_eq!(left_out.count(), 1, "{name}: {names:?}");
            let last = names.last();
            assert!(
                last.is_some_and(|last| is_thread_entry(last)),
                "{name}: {names:?}"
            );
        }
    }
}
