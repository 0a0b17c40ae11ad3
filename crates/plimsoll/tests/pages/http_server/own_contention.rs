//! Reading the profiles does not add to them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use plimsoll::metrics::{Sample, Value, read};
use plimsoll::profile::{self, Detail, Format};

use crate::http_server::harness::{page, server};
use plimsoll_testkit::child;
use plimsoll_testkit::client::wait_for;

const PAGES: [&str; 14] = [
    "?",
    "allocs",
    "block?debug=1",
    "fragmentation",
    "goroutine",
    "goroutine?debug=2",
    "goroutineleak?debug=1",
    "heap?debug=1",
    "lifetimes",
    "longpoll",
    "mutex",
    "peak",
    "selfcontention?debug=1",
    "threadcreate",
];

const CLIENTS: usize = 3;
const READERS: usize = 2;

/// Returns the profile as text, with the waits of idle threads.
fn text(name: &str) -> String {
    let mut text = Vec::new();
    let profile = profile::lookup(name).expect("it is built in").with_idle();
    profile
        .write_with(&mut text, Format::Text, Detail::Names)
        .expect("memory takes everything");
    String::from_utf8(text).expect("it is text")
}

fn samples(name: &str) -> usize {
    text(name)
        .lines()
        .filter(|line| line.contains(" @"))
        .count()
}

fn own_waits() -> u64 {
    let mut samples = [Sample::new("/plimsoll/self/waits:waits")];
    read(&mut samples);
    match samples[0].value {
        Value::Uint64(waits) => waits,
        ref other => panic!("not a count: {other:?}"),
    }
}

fn reads_all_pages_and_leaves_no_trace() {
    let _plimsoll = plimsoll::start();
    let (server, address) = server();
    static READ: AtomicUsize = AtomicUsize::new(0);
    static ENDED: AtomicBool = AtomicBool::new(false);
    let client = move || {
        while !ENDED.load(Ordering::Relaxed) {
            let target = PAGES[READ.fetch_add(1, Ordering::Relaxed) % PAGES.len()];
            assert_eq!(page(address, target).status, 200, "{target}");
        }
    };
    // Threads of the program take and release Plimsoll's locks.
    let reader = || {
        for profile in profile::profiles().iter().cycle() {
            if ENDED.load(Ordering::Relaxed) {
                return;
            }
            let mut out = Vec::new();
            profile
                .write_with(&mut out, Format::Pprof, Detail::Addresses)
                .expect("memory takes everything");
            plimsoll::mem_stats();
            read(&mut [Sample::new("/sched/goroutines:goroutines")]);
        }
    };
    let clients = (0..CLIENTS).map(|_| thread::spawn(client));
    let readers = (0..READERS).map(|_| thread::spawn(reader));
    let threads: Vec<_> = clients.chain(readers).collect();
    wait_for("all pages, and waits of Plimsoll's own", || {
        READ.load(Ordering::Relaxed) >= PAGES.len() + CLIENTS && own_waits() > 0
    });
    ENDED.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("a reader does not panic");
    }
    drop(server);
    assert_eq!(samples("block"), 0, "{}", text("block"));
    assert_eq!(samples("mutex"), 0, "{}", text("mutex"));
    assert_eq!(plimsoll::lock_stats().waits, 0);
    assert!(samples("selfcontention") > 0);
}

#[test]
fn block_and_mutex_stay_empty_while_all_pages_are_read() {
    child::run(
        "own_contention::block_and_mutex_stay_empty_while_all_pages_are_read",
        "block_rate=1ns,mutex_fraction=1,heap_rate=1,long_poll=1ns",
        reads_all_pages_and_leaves_no_trace,
    );
}
