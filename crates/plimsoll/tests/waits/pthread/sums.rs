//! The total waited for locks equals the total blamed on releases, to the nanosecond.

use std::thread;

use plimsoll::profile;

use crate::pthread::c::{self, Shared};
use crate::pthread::scene::{Recording, has, kind};
use plimsoll_checks::profile::read_profile;

/// Returns the nanoseconds for locks in stacks with `c_works_at_random`.
fn of_locks(profile: &str) -> i64 {
    let profile = read_profile(profile);
    let samples = profile.sample.iter().filter(|sample| {
        has(&profile, sample, "c_works_at_random")
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
    for (threads, turns) in [(2, 3000), (4, 1500), (12, 500)] {
        let locks = Shared::at(c::c_makes_locks());
        thread::scope(|scope| {
            for number in 1..=threads {
                let locks = &locks;
                scope.spawn(move || {
                    let seed = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(number + threads);
                    assert_eq!(c::c_works_at_random(locks.get(), seed, turns), 0);
                });
            }
        });
    }
    assert_eq!(profile::lost_events(), lost);
    let (waited, blamed) = (of_locks("block"), of_locks("mutex"));
    assert!(
        waited > 1_000_000,
        "{waited} ns are too few for a comparison"
    );
    assert_eq!(waited, blamed);
}
