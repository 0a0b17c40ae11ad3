//! The waits and releases of a named lock have the label `lock`.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::sync::{Condvar, Mutex, RwLock};

use crate::sync::scene::{Recording, blocked, has};
use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::pprof::Sample;

/// Returns the values of the label `lock` of the samples with this function in their stack, sorted
/// and without duplicates. A sample without the label yields "".
fn names(profile: &str, function: &str) -> Vec<String> {
    let profile = read_profile(profile);
    let named = |sample: &&Sample| has(&profile, sample, function);
    let name = |sample| profile.label(sample, "lock").unwrap_or_default().to_owned();
    let mut names: Vec<String> = profile.sample.iter().filter(named).map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[inline(never)]
fn waits_for_what_has_a_name(wait: &dyn Fn()) {
    wait();
    std::hint::black_box(());
}

#[inline(never)]
fn gives_up_what_has_a_name(give_up: impl FnOnce()) {
    give_up();
    std::hint::black_box(());
}

#[test]
fn waits_and_releases_have_the_name() {
    let _recording = Recording::all();
    let in_use = [
        Mutex::named("accounts", ()),
        Mutex::named("a \"quoted\"\nname", ()),
        Mutex::new(()),
    ];
    let table = RwLock::named("table", ());
    let (ready, lock) = (Condvar::named("ready"), Mutex::new(()));
    let is_ready = AtomicBool::new(false);
    for mutex in &in_use {
        let held = mutex.lock().unwrap();
        blocked(
            || waits_for_what_has_a_name(&|| drop(mutex.lock())),
            || gives_up_what_has_a_name(|| drop(held)),
        );
    }
    let held = table.write().unwrap();
    blocked(
        || waits_for_what_has_a_name(&|| drop(table.read())),
        || gives_up_what_has_a_name(|| drop(held)),
    );
    let held = table.read().unwrap();
    blocked(
        || waits_for_what_has_a_name(&|| drop(table.write())),
        || gives_up_what_has_a_name(|| drop(held)),
    );
    blocked(
        || {
            waits_for_what_has_a_name(&|| {
                let guard = lock.lock().unwrap();
                drop(ready.wait_while(guard, |()| !is_ready.load(Ordering::Acquire)));
            });
        },
        || {
            is_ready.store(true, Ordering::Release);
            ready.notify_all();
        },
    );
    let waited = names("block", "waits_for_what_has_a_name");
    let expected = ["", "a \"quoted\"\nname", "accounts", "ready", "table"];
    assert_eq!(waited, expected);
    let blamed = names("mutex", "gives_up_what_has_a_name");
    assert_eq!(blamed, ["", "a \"quoted\"\nname", "accounts", "table"]);
}
