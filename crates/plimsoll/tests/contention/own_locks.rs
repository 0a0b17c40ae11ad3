//! Plimsoll's own locks.

use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;

use crate::pprof::{Profile, Sample};
use crate::scene::alone;

/// Threads that write profiles wait for one another, too.
#[test]
fn plimsolls_own_locks_are_in_the_profile() {
    let _alone = alone();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| drop(Profile::of_all("mutex", Detail::Names)));
            }
        });
        let profile = Profile::of_all("mutex", Detail::Names);
        let own = |sample: &Sample| {
            let names = profile.names(sample);
            let at_leaf = names.iter().take(3);
            at_leaf.into_iter().any(|name| name.contains("plimsoll::"))
        };
        if profile.sample.iter().any(own) {
            return;
        }
        assert!(Instant::now() < deadline, "none of them was contended");
    }
}
