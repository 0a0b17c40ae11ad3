//! Every kind of profile that Plimsoll makes.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use plimsoll::profile::{self, Detail, Format, Profile};
use plimsoll::thread::{ThreadRecord, ThreadState};
use plimsoll::{http, label};
use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::pprof;

use super::{canonical, python, read, request};

/// Makes events of all kinds, with labels.
fn events(connections: Profile) -> (Vec<Vec<u8>>, profile::Entry) {
    let _labels = label::with([("tenant", "a \"b\" \\ \u{e9}")]);
    let kept = (1..50).map(|size| black_box(vec![0; 100 * size])).collect();
    for size in 1..50 {
        drop(black_box(vec![0_u8; 100 * size]));
    }
    while ["block", "mutex"]
        .iter()
        .any(|name| profile::lookup(name).unwrap().count() == 0)
    {
        wait_for_a_lock();
    }
    (kept, connections.add(0).unwrap())
}

/// Holds a lock until another thread waits, most probably for that lock.
fn wait_for_a_lock() {
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    let wanted = Arc::clone(&lock);
    let named = thread::Builder::new().name("otlp-waiter".into());
    let waiter = named.spawn(move || drop(wanted.lock().unwrap())).unwrap();
    let waits = |thread: &ThreadRecord| {
        thread.name() == "otlp-waiter" && thread.state() == ThreadState::Waiting
    };
    while !plimsoll::thread::threads().iter().any(waits) {
        thread::sleep(Duration::from_millis(1));
    }
    drop(held);
    waiter.join().unwrap();
}

/// Uses CPU time until some of it was sampled.
fn cpu() -> Vec<u8> {
    profile::cpu::start().unwrap();
    let count = || read_profile("profile").sample.len();
    while count() == 0 {
        black_box((0..1_000_000_u64).map(black_box).sum::<u64>());
    }
    let mut bytes = Vec::new();
    let snapshot = profile::cpu::stop().expect("it was started");
    snapshot.write_to(&mut bytes, Detail::Full).unwrap();
    bytes
}

#[test]
fn two_decoders_find_what_pprof_has_in_every_kind() {
    profile::set_heap_rate(1);
    profile::set_block_rate(Duration::from_nanos(1));
    profile::set_mutex_fraction(1);
    let connections = Profile::new("otlp.connections").unwrap();
    let _kept = events(connections);
    profile::set_heap_rate(profile::DEFAULT_HEAP_RATE);
    let mut all = vec![("cpu", cpu())];
    let wall = http::Request::new("GET", "/debug/pprof/wall", "seconds=1").answer();
    assert_eq!(wall.status, 200);
    all.push(("wall", wall.body));
    for profile in profile::profiles() {
        let mut bytes = Vec::new();
        profile
            .with_idle()
            .write_to(&mut bytes, Format::Pprof)
            .unwrap();
        all.push((profile.name(), bytes));
    }
    let bodies: Vec<_> = all.iter().map(|(_, bytes)| read(bytes)).collect();
    let body = request(&bodies);
    let scopes = canonical::of_otlp(&body);
    assert_eq!(scopes.len(), all.len());
    for ((name, bytes), scope) in all.iter().zip(&scopes) {
        let expected = canonical::of_pprof(&pprof::Profile::read(bytes));
        assert_eq!(scope, &expected, "{name}");
    }
    if let Some(lines) = python::decoded("kinds", &body) {
        assert_eq!(lines, scopes.concat());
    }
    // The comparison has something of each sort to compare.
    let with_samples = all
        .iter()
        .zip(&scopes)
        .filter(|(_, scope)| scope.iter().any(|line| line.starts_with("  ")));
    let names: Vec<_> = with_samples.map(|((name, _), _)| *name).collect();
    for name in [
        "cpu",
        "wall",
        "allocs",
        "block",
        "goroutine",
        "heap",
        "lifetimes",
        "memory",
        "mutex",
        "otlp.connections",
        "peak",
    ] {
        assert!(names.contains(&name), "{name} is empty: {names:?}");
    }
    let text = scopes.concat().join("\n");
    for part in [
        "[bytes=3200 bytes, tenant=",
        "lifetime=",
        " nanoseconds",
        "tenant=\"a \\\"b\\\" \\\\ \u{e9}\"",
        "kinds.rs",
        ",<",
        "kind=",
    ] {
        assert!(text.contains(part), "{part} is absent");
    }
}
