//! Rates other than those that record every event.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;

use crate::contention::scenarios;
use crate::contention::scene::{alone, sum, thread_id, until_it_waits};
use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof::Profile;

#[test]
fn setting_the_fraction_to_0_keeps_records() {
    let _alone = alone();
    scenarios::mutex_lock();
    let before = read_with_idle("mutex", Detail::Full);
    assert_eq!(plimsoll::profile::set_mutex_fraction(0), 1);
    assert_eq!(plimsoll::profile::mutex_fraction(), 0);
    scenarios::mutex_lock();
    let after = read_with_idle("mutex", Detail::Full);
    let within = |profile: &Profile| {
        sum(profile, |profile, sample| {
            profile
                .names(sample)
                .iter()
                .any(|name| name.contains("scenarios::mutex_lock"))
        })
    };
    assert_eq!(within(&before), within(&after));
    assert_eq!(plimsoll::profile::set_mutex_fraction(5), 0);
    assert_eq!(plimsoll::profile::set_mutex_fraction(1), 5);
}

/// As in Go, `/sync/mutex/wait/total:seconds` works without any rate.
#[test]
fn waits_for_locks_are_estimated_while_nothing_is_recorded() {
    let _alone = alone();
    plimsoll::profile::set_block_rate(Duration::ZERO);
    plimsoll::profile::set_mutex_fraction(0);
    const WAITS: u32 = 400;
    const EACH: Duration = Duration::from_millis(1);
    let before = plimsoll::lock_stats();
    let start = Instant::now();
    let lock = Mutex::new(());
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let (go, gone) = mpsc::channel();
        let lock = &lock;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            while gone.recv().is_ok() {
                drop(lock.lock().unwrap());
            }
        });
        let waiter = said.recv().unwrap();
        for _ in 0..WAITS {
            // The waiter waits for the message `go`, and then for the lock.
            until_it_waits(waiter);
            let guard = lock.lock().unwrap();
            let switches = || std::fs::read_to_string(format!("/proc/self/task/{waiter}/status"));
            let before = switches().unwrap();
            go.send(()).unwrap();
            while switches().unwrap() == before {
                thread::yield_now();
            }
            until_it_waits(waiter);
            thread::sleep(EACH);
            drop(guard);
        }
        drop(go);
    });
    let took = start.elapsed();
    let after = plimsoll::lock_stats();
    assert_eq!(after.lock_waits, before.lock_waits, "nothing is recorded");
    let estimate = after.lock_waited_estimate - before.lock_waited_estimate;
    assert_eq!(
        after.mutex_wait_total() - before.mutex_wait_total(),
        estimate
    );
    // About 50 waits are timed; five standard deviations less are 17.
    let (least, most) = (8 * 17 * EACH, 8 * took);
    assert!(
        least <= estimate && estimate <= most,
        "{estimate:?}, not {least:?} to {most:?}"
    );
}
