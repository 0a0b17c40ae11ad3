//! Contention on Plimsoll's own locks.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;

use crate::contention::scene::alone;
use plimsoll_checks::profile::read_with_idle;

/// Threads that write profiles wait for one another, which the program did not cause.
#[test]
fn plimsolls_own_locks_are_in_a_profile_of_their_own() {
    let _alone = alone();
    let deadline = Instant::now() + Duration::from_secs(60);
    let own = || read_with_idle("selfcontention", Detail::Names);
    while own().sample.is_empty() {
        assert!(Instant::now() < deadline, "none of them was contended");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| drop(read_with_idle("mutex", Detail::Names)));
            }
        });
    }
    let own = own();
    for sample in &own.sample {
        let names = own.names(sample);
        assert!(
            names
                .iter()
                .any(|name| name.contains("plimsoll_profiles::")),
            "{names:?}"
        );
    }
    for name in ["block", "mutex"] {
        let profile = read_with_idle(name, Detail::Names);
        for sample in &profile.sample {
            let names = profile.names(sample);
            let is_own = |name: &&str| {
                [
                    "plimsoll_core::",
                    "plimsoll_profiles::profile",
                    "plimsoll_waits::contention",
                ]
                .iter()
                .any(|own| name.contains(own))
            };
            assert!(!names.iter().any(is_own), "{name}: {names:?}");
        }
    }
}
