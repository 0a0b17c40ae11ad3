//! `PLIMSOLL=off`, and switching on and off.

use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use plimsoll::profile::{self, Format};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{get, wait_for};

use super::{Dir, lines, threads};

/// Allocates more than the mean distance of samples a hundred times, and returns the number of records of the heap
/// profile.
fn records_after_allocations() -> usize {
    let kept: Vec<Vec<u8>> = (0..512).map(|_| vec![1; 100 << 10]).collect();
    let records = profile::lookup("heap").unwrap().snapshot().records().len();
    drop(kept);
    records
}

/// Returns the names of the threads of Plimsoll.
fn own_threads() -> Vec<String> {
    let mut names = threads();
    names.retain(|name| name.starts_with("plimsoll-"));
    names
}

fn has_no_history() -> bool {
    let history = plimsoll::history::read();
    history.steps.iter().all(|step| step.points.is_empty())
}

fn goes_off_and_on() {
    let code = plimsoll::config()
        .http("127.0.0.1:0")
        .heap_rate(4096)
        .block_rate(Duration::from_nanos(1))
        .cpu_rate(19);
    let before = plimsoll::heap_stats().mallocs;
    let mut plimsoll = code.start();
    assert!(!plimsoll.is_on());
    assert_eq!(plimsoll.http_address(), None);
    assert_eq!(own_threads(), [""; 0]);
    assert_eq!(records_after_allocations(), 0);
    assert!(
        plimsoll::heap_stats().mallocs - before > 512,
        "counts remain"
    );
    assert!(has_no_history());
    plimsoll.switch_off();

    for round in 1..=2 {
        plimsoll.switch_on();
        plimsoll.switch_on();
        assert!(plimsoll.is_on());
        let address = plimsoll.http_address().unwrap();
        assert_eq!(get(address, "/debug/pprof/heap").status, 200);
        let rates = (
            profile::heap_rate(),
            profile::block_rate(),
            profile::cpu::rate(),
        );
        assert_eq!(rates, (4096, Duration::from_nanos(1), 19), "round {round}");
        assert!(records_after_allocations() > 0);
        wait_for("a reading of the history", || !has_no_history());

        plimsoll.switch_off();
        plimsoll.switch_off();
        assert!(!plimsoll.is_on());
        assert_eq!(plimsoll.http_address(), None);
        TcpStream::connect(address).unwrap_err();
        let rates = (
            profile::heap_rate(),
            profile::block_rate(),
            profile::cpu::rate(),
        );
        assert_eq!(rates, (0, Duration::ZERO, 0), "round {round}");
        // One thread remains, which waits for ever.
        wait_for("the end of the server's threads", || {
            own_threads().iter().all(|name| name == "plimsoll-maint")
        });
        assert!(has_no_history());
    }
    // What was sampled can still be written.
    let mut text = Vec::new();
    let heap = profile::lookup("heap").unwrap();
    heap.write_to(&mut text, Format::Text).unwrap();
    assert!(!text.is_empty());
}

#[test]
fn off_in_the_environment_holds_until_it_is_switched_on() {
    let directory = Dir::new("off");
    let settings = format!(
        "{0},off,heap_rate=1,history=1m,postmortem={1}/postmortem,memory_limit=1g",
        directory.settings(),
        directory.0.display()
    );
    let name = "off::off_in_the_environment_holds_until_it_is_switched_on";
    let test = || {
        let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
        assert_eq!((plimsoll.is_on(), plimsoll.http_address()), (false, None));
        assert_eq!(own_threads(), [""; 0]);
        assert_eq!(records_after_allocations(), 0);
    };
    let Some(stderr) = child::stderr_of(name, settings, test) else {
        return;
    };
    assert_eq!(lines(&stderr), [""; 0]);
    assert_eq!(directory.names(), [""; 0], "profiles were written");
}

#[test]
fn everything_is_switched_on_and_off() {
    child::run(
        "off::everything_is_switched_on_and_off",
        "off",
        goes_off_and_on,
    );
}

/// Without the environment: what was sampled before the start stays.
#[test]
fn off_in_the_code_begins_at_the_start() {
    child::run("off::off_in_the_code_begins_at_the_start", "", || {
        let plimsoll = plimsoll::config().heap_rate(1).off().start();
        assert!(!plimsoll.is_on());
        assert_eq!(profile::heap_rate(), 0);
        assert_eq!(own_threads(), [""; 0]);
    });
}

/// Rates that are set while everything is off hold from the next switch on.
#[test]
fn rates_that_are_set_meanwhile_wait() {
    child::run("off::rates_that_are_set_meanwhile_wait", "", || {
        let mut plimsoll = plimsoll::config().start();
        let block_rate = profile::block_rate();
        plimsoll.switch_off();
        assert_eq!(profile::set_heap_rate(1), profile::DEFAULT_HEAP_RATE);
        let before = profile::set_block_rate(Duration::from_nanos(7));
        assert_eq!(before, block_rate);
        assert!(!plimsoll::task::set_times(true));
        assert_eq!(profile::heap_rate(), 0);
        // Blocks from before may be sampled.
        let heap = profile::lookup("heap").unwrap();
        let records = heap.snapshot().records().len();
        assert!(records_after_allocations() <= records);
        plimsoll.switch_on();
        assert_eq!(profile::heap_rate(), 1);
        assert_eq!(profile::block_rate(), Duration::from_nanos(7));
        assert!(plimsoll::task::set_times(false));
    });
}

/// Rates of another thread that are set at the same moment.
#[test]
fn no_rate_that_is_set_during_the_switch_is_in_force() {
    child::run(
        "off::no_rate_that_is_set_during_the_switch_is_in_force",
        "",
        || {
            let mut plimsoll = plimsoll::config().start();
            let is_over = AtomicBool::new(false);
            let in_force = thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        profile::set_heap_rate(4096);
                        profile::set_block_rate(Duration::from_micros(1));
                    }
                });
                let mut in_force = 0;
                for _ in 0..1000 {
                    plimsoll.switch_off();
                    for _ in 0..100 {
                        let rates = (profile::heap_rate(), profile::block_rate());
                        in_force += u32::from(rates != (0, Duration::ZERO));
                    }
                    plimsoll.switch_on();
                }
                is_over.store(true, Relaxed);
                in_force
            });
            assert_eq!(in_force, 0);
        },
    );
}

/// The switch is the process's.
#[test]
fn a_start_switches_on_and_each_value_has_its_pages() {
    child::run(
        "off::a_start_switches_on_and_each_value_has_its_pages",
        "",
        || {
            let mut first = plimsoll::config().http("127.0.0.1:0").start();
            let mut second = plimsoll::config().http("127.0.0.1:0").start();
            first.switch_off();
            second.switch_off();
            assert!(first.http_address().is_none() && second.http_address().is_none());
            assert!(!first.is_on() && !second.is_on());
            first.switch_on();
            assert!(second.is_on() && second.http_address().is_none());
            second.switch_on();
            assert!(second.http_address().is_some());
            assert_eq!(profile::heap_rate(), profile::DEFAULT_HEAP_RATE);

            first.switch_off();
            drop((first, second));
            let third = plimsoll::start();
            assert!(third.is_on());
            assert_eq!(profile::heap_rate(), profile::DEFAULT_HEAP_RATE);
            drop(third);
            // Nothing that is left of it goes on.
            let fourth = plimsoll::config().off().start();
            assert!(!fourth.is_on() && has_no_history());
        },
    );
}

/// A child that was forked while everything was off may start, or switch on what it inherits.
#[test]
fn the_child_of_a_fork_can_switch_on() {
    child::run("off::the_child_of_a_fork_can_switch_on", "", || {
        let mut plimsoll = plimsoll::config().http("127.0.0.1:0").start();
        plimsoll.switch_off();
        // SAFETY: the child has one thread, uses what a fork leaves whole, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            plimsoll.switch_on();
            let is_right = plimsoll.is_on()
                && plimsoll.http_address().is_some()
                && profile::heap_rate() == profile::DEFAULT_HEAP_RATE;
            // SAFETY: ends the child without the handlers of exit.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the child is this process's.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(!plimsoll.is_on());
    });
}
