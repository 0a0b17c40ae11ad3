//! The profile `goroutineleak`, over small programs: those with a leak must report that one and
//! nothing else, and those that are well must report nothing.
//!
//! Each program has a process of its own, because leaks stay.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
mod pprof;

#[path = "leaks/deadlocks.rs"]
mod deadlocks;
#[path = "leaks/growing.rs"]
mod growing;
#[cfg(feature = "tokio")]
#[path = "leaks/task_deadlocks.rs"]
mod task_deadlocks;
#[path = "leaks/tasks.rs"]
mod tasks;
#[path = "leaks/well.rs"]
mod well;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;
use pprof::Profile;

/// What the profile says: for each leak, of what kind it is and the name of the task or thread, how
/// many there are.
fn leaks() -> BTreeMap<String, i64> {
    let profile = in_full();
    assert_eq!(
        profile.sample_types(),
        [("goroutineleak", "count"), ("probable", "count")]
    );
    let mut leaks = BTreeMap::new();
    for sample in &profile.sample {
        let label = |key| profile.label(sample, key);
        let leak = label("leak").expect("it says why it is there");
        let name = label("task").or(label("thread")).expect("it has a name");
        let [proved, probable] = sample.value[..] else {
            panic!("{sample:?}");
        };
        assert_eq!(proved == 0, leak.contains("probable"), "{sample:?}");
        assert_eq!(proved.min(probable), 0);
        *leaks.entry(format!("{leak}: {name}")).or_insert(0) += proved + probable;
    }
    leaks
}

/// The profile, once it knows of all threads how long they have waited: where the processors are
/// busy, it is not always let find out in time.
fn in_full() -> Profile {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let profile = Profile::of_all("goroutineleak", Detail::Names);
        let comments = profile.comments();
        if !comments.iter().any(|line| line.contains("found out")) {
            return profile;
        }
        assert!(Instant::now() < deadline, "{comments:?}");
    }
}

/// Has locks note their owners from now on, as each reading does.
fn note_owners() {
    drop(leaks());
}

/// That is what the profile says in the end, and goes on saying.
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

/// A test of that name which runs the program of that name in a process of its own.
macro_rules! programs {
    ($($settings:literal: $($(#[$attribute:meta])* $name:ident)*;)*) => {
        mod programs {
            $($(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    let (_, module) = module_path!().split_once("::").unwrap();
                    let name = format!("{module}::{}", stringify!($name));
                    crate::child::run(&name, $settings, super::$name);
                }
            )*)*
        }
    };
}
pub(crate) use programs;

/// Runs tasks on one thread until `work` is done, and drops those that are left.
fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, work);
}
