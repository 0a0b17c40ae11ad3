//! Estimates of waits for locks while nothing is recorded.

use std::time::{Duration, Instant};

use crate::pthread::c::{self, Mutex};
use crate::pthread::scene::{Recording, Releaser, until_asleep};

/// The same test as for locks that make futex calls themselves.
#[test]
fn waits_for_locks_are_estimated_while_nothing_is_recorded() {
    let _recording = Recording::all();
    plimsoll::profile::set_block_rate(Duration::ZERO);
    plimsoll::profile::set_mutex_fraction(0);
    const WAITS: u32 = 400;
    const EACH: Duration = Duration::from_millis(1);
    let before = plimsoll::lock_stats();
    let start = Instant::now();
    let mutex = Mutex::zeroed();
    for _ in 0..WAITS {
        assert_eq!(c::c_locks(mutex.get()), 0);
        std::thread::scope(|scope| {
            let _releaser = Releaser;
            let (say, said) = std::sync::mpsc::channel();
            let mutex = &mutex;
            scope.spawn(move || {
                // SAFETY: has no preconditions.
                say.send(unsafe { libc::gettid() }).unwrap();
                assert_eq!(c::c_waits_plainly(mutex.get()), 0);
            });
            until_asleep(said.recv().unwrap());
            std::thread::sleep(EACH);
            assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
        });
    }
    let took = start.elapsed();
    let after = plimsoll::lock_stats();
    assert_eq!(after.lock_waits, before.lock_waits, "nothing is recorded");
    let estimate = after.lock_waited_estimate - before.lock_waited_estimate;
    // About 50 waits are timed; five standard deviations less are 17.
    let (least, most) = (8 * 17 * EACH, 8 * took);
    assert!(
        least <= estimate && estimate <= most,
        "{estimate:?}, not {least:?} to {most:?}"
    );
}
