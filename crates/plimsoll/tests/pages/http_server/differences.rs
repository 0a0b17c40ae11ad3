//! Differences of `mutex` over a second: Go's tests of `seconds=`.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use plimsoll::profile;
use plimsoll::sync::Mutex;

use crate::http_server::harness::{page, server};
use plimsoll_testkit::child;
use plimsoll_testkit::client::wait_for;
use plimsoll_testkit::pprof::Profile;

/// Reports whether a thread of this process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.unwrap_or_default();
    // The name may contain any character, even a parenthesis.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Releases a lock for which another thread waits.
#[inline(always)]
fn contended() {
    let (lock, waiter) = (Mutex::new(()), AtomicI32::new(0));
    thread::scope(|scope| {
        let guard = lock.lock().unwrap();
        scope.spawn(|| {
            // SAFETY: has no preconditions.
            waiter.store(unsafe { libc::gettid() }, Ordering::Release);
            drop(lock.lock().unwrap());
        });
        wait_for("a thread that waits for the lock", || {
            sleeps(waiter.load(Ordering::Acquire))
        });
        drop(guard);
    });
}

#[inline(never)]
fn contends_before() {
    contended();
    black_box(());
}

#[inline(never)]
fn contends_meanwhile() {
    contended();
    black_box(());
}

/// Reports whether a function is in a stack of the profile.
fn has(profile: &Profile, function: &str) -> bool {
    let ending = format!("::{function}");
    let mut samples = profile.sample.iter();
    samples.any(|sample| {
        let mut names = profile.names(sample).into_iter();
        names.any(|name| name.ends_with(&ending))
    })
}

fn fetched(address: SocketAddr, target: &str) -> Profile {
    let answer = page(address, target);
    assert_eq!(answer.status, 200, "{target}");
    Profile::read(&answer.body)
}

/// Fetches a difference over a second, during which the program contends again and again.
fn difference_with_contention(address: SocketAddr) -> Profile {
    thread::scope(|scope| {
        let difference = scope.spawn(|| fetched(address, "mutex?seconds=1"));
        while !difference.is_finished() {
            contends_meanwhile();
        }
        difference.join().unwrap()
    })
}

fn one_contention_before_and_others_meanwhile() {
    let (_server, address) = server();
    profile::set_mutex_fraction(1);
    wait_for("a contention before", || {
        contends_before();
        has(&fetched(address, "mutex"), "contends_before")
    });
    // On a busy machine, a contention may take longer than the whole difference.
    wait_for("a contention within a difference", || {
        let difference = difference_with_contention(address);
        assert!(!has(&difference, "contends_before"));
        assert!(difference.duration_nanos > 0);
        has(&difference, "contends_meanwhile")
    });
    let whole = fetched(address, "mutex");
    assert!(has(&whole, "contends_before") && has(&whole, "contends_meanwhile"));
}

#[test]
fn a_difference_of_mutex_has_only_the_contention_meanwhile() {
    child::run(
        "differences::a_difference_of_mutex_has_only_the_contention_meanwhile",
        "",
        one_contention_before_and_others_meanwhile,
    );
}

fn no_contention_at_all() {
    let (_server, address) = server();
    profile::set_mutex_fraction(1);
    let empty = fetched(address, "mutex?seconds=1");
    assert!(empty.sample.is_empty());
    let types = [("contentions", "count"), ("delay", "nanoseconds")];
    assert_eq!(empty.sample_types(), types);
    let period_type = empty.period_type.as_ref().expect("as in Go");
    let (name, unit) = (empty.text(period_type.name), empty.text(period_type.unit));
    assert_eq!((name, unit), ("contentions", "count"));
    assert_eq!(empty.period, 1);
    assert!(empty.duration_nanos > 0);
}

#[test]
fn an_empty_difference_of_mutex_has_its_types_and_period() {
    child::run(
        "differences::an_empty_difference_of_mutex_has_its_types_and_period",
        "",
        no_contention_at_all,
    );
}
