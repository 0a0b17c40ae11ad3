//! Stacks whose callers are inlined.

use std::hint::black_box;
use std::sync::Mutex;
use std::thread;

use plimsoll::profile::Detail;

use crate::contention::scene::{Waiter, alone};
use plimsoll_checks::profile::read_with_idle;

#[inline(always)]
fn inlined_innermost(lock: &Mutex<u8>) -> u8 {
    *lock.lock().unwrap()
}

#[inline(always)]
fn inlined_middle(lock: &Mutex<u8>) -> u8 {
    inlined_innermost(lock) + 1
}

#[inline(never)]
fn calls_inlined(lock: &Mutex<u8>) -> u8 {
    inlined_middle(lock) + 1
}

#[test]
fn inlined_callers_are_expanded_and_no_stack_is_there_twice() {
    let _alone = alone();
    let lock = Mutex::new(0);
    for _ in 0..3 {
        let guard = lock.lock().unwrap();
        let waiters: [Waiter; 2] = Default::default();
        thread::scope(|scope| {
            let lock = &lock;
            for it in &waiters {
                scope.spawn(move || {
                    it.is_here();
                    black_box(calls_inlined(lock));
                });
            }
            for it in &waiters {
                it.until_it_waits();
            }
            drop(guard);
        });
    }
    for name in ["block", "mutex"] {
        let profile = read_with_idle(name, Detail::Full);
        let mut stacks: Vec<_> = profile
            .sample
            .iter()
            .map(|sample| (&sample.location_id, profile.label(sample, "kind")))
            .collect();
        let all = stacks.len();
        stacks.sort();
        stacks.dedup();
        assert_eq!(stacks.len(), all, "{name}: a stack is there twice");
        let mut expanded = profile.sample.iter().map(|sample| profile.names(sample));
        assert!(
            expanded.any(|names| {
                let at = |function| names.iter().position(|name| name.ends_with(function));
                match (
                    at("inlined_innermost"),
                    at("inlined_middle"),
                    at("calls_inlined"),
                ) {
                    (Some(a), Some(b), Some(c)) => a + 1 == b && b + 1 == c,
                    _ => false,
                }
            }),
            "{name}"
        );
    }
}
