//! What was waited for locks is what was blamed on releases, to the nanosecond.

use std::thread;

use plimsoll::profile;

use crate::c::{self, Shared};
use crate::pprof::Profile;
use crate::scene::{Recording, has, kind};

/// Nanoseconds at `c_works_at_random`, of locks.
fn of_locks(profile: &str) -> i64 {
    let profile = Profile::of(profile);
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
fn all_that_was_waited_for_locks_is_blamed_on_somebody() {
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
    assert!(waited > 1_000_000, "{waited} ns are too few to tell");
    assert_eq!(waited, blamed);
}
