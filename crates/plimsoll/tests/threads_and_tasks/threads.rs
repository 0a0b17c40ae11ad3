//! The `goroutine` profile: it contains every thread with its stack, and disturbs none of them.

#[path = "threads/crowd.rs"]
mod crowd;
#[path = "threads/hard_cases.rs"]
mod hard_cases;
#[path = "threads/spinning.rs"]
mod spinning;

use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::{child, pprof};
use std::collections::HashMap;

use crowd::{Crowd, KINDS, alone};
use plimsoll::profile::Detail;
use pprof::{Profile, Sample, is_thread_entry};

fn goroutine() -> Profile {
    read_with_idle("goroutine", Detail::Names)
}

/// Returns the number of threads in the profile.
fn total(profile: &Profile) -> i64 {
    profile.sample.iter().map(|sample| sample.value[0]).sum()
}

/// Returns the samples of threads with this function in their stack.
fn within<'p>(profile: &'p Profile, function: &str) -> Vec<&'p Sample> {
    let samples = profile.sample.iter();
    samples
        .filter(|sample| {
            let names = profile.names(sample);
            names.iter().any(|name| name.ends_with(function))
        })
        .collect()
}

fn comment_with(profile: &Profile, part: &str) -> bool {
    let comments = profile.comments();
    comments.iter().any(|comment| comment.contains(part))
}

/// Runs in a separate process: running threads, such as those of concurrent tests, may be found
/// without a stack.
#[test]
fn a_thousand_blocked_threads_are_read_and_none_is_interrupted() {
    child::run(
        "a_thousand_blocked_threads_are_read_and_none_is_interrupted",
        "",
        thousand_blocked,
    );
}

fn thousand_blocked() {
    let crowd = Crowd::gather(1000);
    for _ in 0..3 {
        let profile = goroutine();
        let mut seen: HashMap<&str, i64> = HashMap::new();
        for sample in &profile.sample {
            let names = profile.names(sample);
            let Some(kind) = KINDS
                .iter()
                .find(|kind| names.iter().any(|name| name.ends_with(kind.function)))
            else {
                continue;
            };
            assert_eq!(profile.label(sample, "state"), Some("waiting"), "{names:?}");
            assert_eq!(profile.label(sample, "wait"), Some(kind.wait), "{names:?}");
            let calls = names
                .iter()
                .filter(|name| name.ends_with("crowd::begins_here"));
            assert_eq!(calls.count(), 5, "{}: {names:?}", kind.function);
            assert!(
                names.last().is_some_and(|name| is_thread_entry(name)),
                "{}: {names:?}",
                kind.function
            );
            *seen.entry(kind.function).or_default() += sample.value[0];
        }
        for kind in &KINDS {
            assert_eq!(
                seen.get(kind.function).copied(),
                Some(crowd.members(kind)),
                "{}: {seen:?}",
                kind.function
            );
        }
        assert!(
            comment_with(&profile, " 0 of them without a complete stack"),
            "{:?}",
            profile.comments()
        );
    }
    assert_eq!(crowd.interruptions(), 0);
}
