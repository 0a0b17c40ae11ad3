//! The profile `goroutineleak` of small programs. A program with a leak must report that leak and
//! nothing else; a program without one must report nothing.
//!
//! Each program runs in a separate process, because leaks stay.

#[path = "leaks/deadlocks.rs"]
mod deadlocks;
#[path = "leaks/goker.rs"]
mod goker;
#[cfg(feature = "tokio")]
#[path = "leaks/goker_tasks.rs"]
mod goker_tasks;
#[path = "leaks/growing.rs"]
mod growing;
#[cfg(feature = "tokio")]
#[path = "leaks/task_deadlocks.rs"]
mod task_deadlocks;
#[path = "leaks/tasks.rs"]
mod tasks;
#[path = "leaks/well.rs"]
mod well;

use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;
use pprof::Profile;

/// Returns the number of leaks by kind and name of the task or thread.
fn leaks() -> BTreeMap<String, i64> {
    let profile = in_full();
    assert_eq!(
        profile.sample_types(),
        [("goroutineleak", "count"), ("probable", "count")]
    );
    let mut leaks = BTreeMap::new();
    for sample in &profile.sample {
        let label = |key| profile.label(sample, key);
        let leak = label("leak").expect("the label gives the reason");
        let name = label("task").or(label("thread")).expect("the name exists");
        let [proved, probable] = sample.value[..] else {
            panic!("{sample:?}");
        };
        assert_eq!(proved == 0, leak.contains("probable"), "{sample:?}");
        assert_eq!(proved.min(probable), 0);
        *leaks.entry(format!("{leak}: {name}")).or_insert(0) += proved + probable;
    }
    leaks
}

/// Returns the profile once it knows how long every thread has waited. On a busy machine, a reading
/// may not find that out in time.
fn in_full() -> Profile {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let profile = read_with_idle("goroutineleak", Detail::Names);
        let comments = profile.comments();
        if !comments.iter().any(|line| line.contains("is unknown")) {
            return profile;
        }
        assert!(Instant::now() < deadline, "{comments:?}");
    }
}

/// Makes locks note their owners from now on, as each reading does.
fn note_owners() {
    drop(leaks());
}

/// Waits until the profile equals `expected`, and checks that it stays so.
#[track_caller]
fn expect(expected: &[(&str, i64)]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let expected: BTreeMap<String, i64> = expected
        .iter()
        .map(|&(leak, count)| (leak.to_owned(), count))
        .collect();
    loop {
        let found = leaks();
        if found == expected {
            break;
        }
        assert!(Instant::now() < deadline, "{found:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(leaks(), expected);
    let proved = expected
        .iter()
        .filter(|(leak, _)| !leak.contains("probable"));
    let total: i64 = proved.map(|(_, count)| count).sum();
    let profile = plimsoll::profile::lookup("goroutineleak").unwrap();
    assert_eq!(profile.count() as i64, total);
}

/// Reads `goroutineleak` and `goroutine` on several threads at once. Both profiles must mark exactly these proved leaks
/// in each reading, and have them afterwards.
#[track_caller]
fn expect_in_readings_at_once(expected: &[(&str, i64)]) {
    expect(expected);
    let proved = |name: &str| {
        let profile = read_with_idle(name, Detail::Names);
        let mut leaks: BTreeMap<String, i64> = BTreeMap::new();
        for sample in &profile.sample {
            let label = |key| profile.label(sample, key);
            let leak = label("leak").filter(|leak| !leak.contains("probable"));
            let Some(leak) = leak else { continue };
            let name = label("task").or(label("thread")).expect("the name exists");
            *leaks.entry(format!("{leak}: {name}")).or_default() += sample.value[0];
        }
        leaks
    };
    let all: BTreeMap<String, i64> = expected
        .iter()
        .map(|&(leak, count)| (leak.to_owned(), count))
        .collect();
    std::thread::scope(|scope| {
        for name in ["goroutineleak", "goroutine", "goroutineleak", "goroutine"] {
            let (proved, all) = (&proved, &all);
            scope.spawn(move || {
                for _ in 0..20 {
                    assert_eq!(proved(name), *all, "{name}");
                }
            });
        }
    });
    expect(expected);
}

/// Defines a test for each named program, which runs the program in a separate process.
macro_rules! programs {
    ($($settings:literal: $($(#[$attribute:meta])* $name:ident)*;)*) => {
        mod programs {
            $($(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    let (_, module) = module_path!().split_once("::").unwrap();
                    let name = format!("{module}::{}", stringify!($name));
                    plimsoll_testkit::child::run(&name, $settings, super::$name);
                }
            )*)*
        }
    };
}
pub(crate) use programs;

/// Runs tasks on one thread until `work` is done, then drops the remaining tasks.
fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, work);
}
