//! Leaks that are only probable: a growing number of waits in the same place, each of them long.

use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::{Detail, Format};
use plimsoll::task::{self, TaskRecord, TrackExt};
use plimsoll_checks::profile::read_with_idle;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::{spawn_local, yield_now};

use super::{block_on, expect, leaks, programs};

programs! {
    "heap_rate=0,leak_age=1ms":
        more_and_more_tasks_wait_for_answers
        more_and_more_tasks_wait_for_a_lock
        more_and_more_tasks_are_not_notified
        more_and_more_threads_wait_for_messages
        more_and_more_sleep
        an_unchanged_number_is_no_growth
        a_proved_leak_is_not_a_probable_one
        a_forks_child_can_look_as_well
        the_first_lines_say_what_a_probable_leak_needs;
}

/// Three times, calls `more` and reads the profile.
async fn in_steps(mut more: impl FnMut(), expected: &[(&str, i64)]) {
    let _plimsoll = plimsoll::start();
    for _ in 0..2 {
        more();
        aged().await;
        expect(&[]);
    }
    more();
    aged().await;
    expect(expected);
}

/// Polls every task, and waits until all waits are long enough to count.
pub(super) async fn aged() {
    for _ in 0..10 {
        yield_now().await;
    }
    thread::sleep(Duration::from_millis(30));
    // The clock by which tasks wait may lag.
    let is_young = |task: &TaskRecord| {
        let waited = task.waited();
        waited.is_some_and(|waited| waited < Duration::from_millis(1))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while task::tasks().iter().any(is_young) {
        assert!(Instant::now() < deadline, "they do not wait");
    }
}

fn more_and_more_tasks_wait_for_answers() {
    block_on(async {
        let mut kept = Vec::new();
        let more = || {
            for _ in 0..5 {
                let (sender, receiver) = oneshot::channel::<()>();
                kept.push(sender);
                spawn_local(async { drop(receiver.await) }.tracked_as("asks"));
            }
        };
        in_steps(more, &[("probable: asks", 15)]).await;
    });
}

fn more_and_more_tasks_wait_for_a_lock() {
    block_on(async {
        let lock: &Rc<Mutex<()>> = Box::leak(Box::default());
        let _held = lock.try_lock().unwrap();
        let more = || {
            let lock = lock.clone();
            spawn_local(async move { drop(lock.lock().await) }.tracked_as("locks"));
        };
        in_steps(more, &[("probable: locks", 3)]).await;
    });
}

fn more_and_more_tasks_are_not_notified() {
    block_on(async {
        let notify = Rc::new(Notify::new());
        let more = || {
            let notify = notify.clone();
            spawn_local(async move { notify.notified().await }.tracked_as("listens"));
        };
        in_steps(more, &[("probable: listens", 3)]).await;
    });
}

/// The first thread waits before the first reading makes hooks note the owners of locks. Its
/// innermost functions therefore differ from those of the others, but the place is the same.
fn more_and_more_threads_wait_for_messages() {
    block_on(async {
        let mut kept = Vec::new();
        let more = || {
            let (sender, receiver) = mpsc::channel::<()>();
            kept.push(sender);
            let thread = thread::Builder::new().name("receives".into());
            let _thread = thread.spawn(move || receiver.recv()).unwrap();
            while waiting("receives", "channel") < kept.len() as i64 {
                thread::yield_now();
            }
        };
        in_steps(more, &[("probable: receives", 3)]).await;
    });
}

/// Five tasks have waited long enough, but more readings are needed: each form reports that first.
fn the_first_lines_say_what_a_probable_leak_needs() {
    block_on(async {
        let _plimsoll = plimsoll::start();
        let mut kept = Vec::new();
        for _ in 0..5 {
            let (sender, receiver) = oneshot::channel::<()>();
            kept.push(sender);
            spawn_local(async { drop(receiver.await) }.tracked_as("asks"));
        }
        aged().await;
        let mut text = Vec::new();
        let profile = plimsoll::profile::lookup("goroutineleak").unwrap();
        assert!(profile.description().contains("leak_age"), "{profile:?}");
        assert!(
            profile.description().contains("three readings"),
            "{profile:?}"
        );
        profile.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("goroutineleak profile: total 0"));
        expect_trend_comment(lines.next().unwrap().strip_prefix("# ").unwrap(), 1);
        let comments = read_with_idle("goroutineleak", Detail::Names);
        expect_trend_comment(comments.comments()[0], 2);
    });
}

fn expect_trend_comment(line: &str, readings: usize) {
    let (before, after) = line
        .split_once(" threads and tasks have waited")
        .expect(line);
    let old = before
        .rsplit(' ')
        .next()
        .unwrap()
        .parse::<usize>()
        .expect(line);
    assert!(old >= 5, "{line}");
    assert!(
        after.starts_with(" for 0.001 s (leak_age) or longer"),
        "{line}"
    );
    let expected = format!("so far: {readings}, needed for a probable leak: 3 or more");
    assert!(after.contains(&expected), "{line}");
}

/// Returns the number of threads with this name that wait for `object`, a value of the label
/// `wait`.
pub(super) fn waiting(name: &str, object: &str) -> i64 {
    let profile = read_with_idle("goroutine", Detail::Names);
    let waiting = profile.sample.iter().filter(|sample| {
        profile.label(sample, "thread") == Some(name)
            && profile.label(sample, "wait") == Some(object)
    });
    waiting.map(|sample| sample.value[0]).sum()
}

/// Sleeps end whatever the program does, so they are no leaks.
fn more_and_more_sleep() {
    block_on(async {
        let more = || {
            spawn_local(tokio::time::sleep(Duration::from_secs(600)).tracked_as("sleeps"));
            thread::spawn(|| thread::sleep(Duration::from_secs(600)));
        };
        in_steps(more, &[]).await;
    });
}

fn an_unchanged_number_is_no_growth() {
    block_on(async {
        let mut kept = Vec::new();
        let mut tasks = Vec::new();
        let more = || {
            kept.clear();
            for task in tasks.drain(..) {
                drop::<tokio::task::JoinHandle<()>>(task);
            }
            for _ in 0..10 {
                let (sender, receiver) = oneshot::channel::<()>();
                kept.push(sender);
                tasks.push(spawn_local(
                    async { drop(receiver.await) }.tracked_as("asks"),
                ));
            }
        };
        in_steps(more, &[]).await;
    });
}

fn a_proved_leak_is_not_a_probable_one() {
    block_on(async {
        let _plimsoll = plimsoll::start();
        for count in 1..6 {
            spawn_local(std::future::pending::<()>().tracked_as("lost"));
            aged().await;
            expect(&[("forgotten: lost", count)]);
        }
        assert_eq!(leaks().len(), 1);
    });
}

/// A child of a fork can read the profile, whatever its parent was doing. The parent has so many
/// places that it spends most of its time comparing them.
fn a_forks_child_can_look_as_well() {
    let _plimsoll = plimsoll::start();
    let mut context = Context::from_waker(Waker::noop());
    let mut tasks: Vec<_> = (0..4000)
        .map(|number| {
            let task = std::future::pending::<()>().tracked_as("asks");
            Box::pin(task.label("number", &number.to_string()))
        })
        .collect();
    for task in &mut tasks {
        assert!(task.as_mut().poll(&mut context).is_pending());
    }
    thread::sleep(Duration::from_millis(30));
    let done = Arc::new(AtomicBool::new(false));
    let looks = {
        let done = done.clone();
        thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                look();
            }
        })
    };
    for round in 0..30 {
        // Forks at a different moment of the parent's reading in each round.
        thread::sleep(Duration::from_millis(5 * (round % 10)));
        // SAFETY: the calls that the child makes are the subject of the test.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            look();
            // SAFETY: ends the child without running exit handlers of the parent.
            unsafe { libc::_exit(0) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0, "the child of round {round}");
    }
    done.store(true, Ordering::Relaxed);
    looks.join().unwrap();
}

fn look() {
    let profile = plimsoll::profile::lookup("goroutineleak").unwrap();
    let mut bytes = Vec::new();
    profile
        .write_with(&mut bytes, Format::Pprof, Detail::Addresses)
        .unwrap();
    assert!(!bytes.is_empty());
}
