//! What is only probable: more and more wait in the same place for long.

use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use plimsoll::profile::Detail;
use plimsoll::task::TrackExt;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::{spawn_local, yield_now};

use super::pprof::Profile;
use super::{block_on, expect, leaks, programs};

programs! {
    "heap_rate=0,leak_age=1ms":
        more_and_more_tasks_wait_for_answers
        more_and_more_tasks_wait_for_a_lock
        more_and_more_tasks_are_not_notified
        more_and_more_threads_wait_for_messages
        more_and_more_sleep
        as_many_as_before_is_no_growth
        a_proved_leak_is_not_a_probable_one;
}

/// Calls `more`, and looks, three times.
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

/// Has everybody be polled, and wait for longer than what is long.
async fn aged() {
    for _ in 0..10 {
        yield_now().await;
    }
    thread::sleep(Duration::from_millis(30));
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

fn more_and_more_threads_wait_for_messages() {
    block_on(async {
        let mut kept = Vec::new();
        let more = || {
            let (sender, receiver) = mpsc::channel::<()>();
            kept.push(sender);
            let thread = thread::Builder::new().name("receives".into());
            let _thread = thread.spawn(move || receiver.recv()).unwrap();
            while waiting("receives") < kept.len() as i64 {
                thread::yield_now();
            }
        };
        in_steps(more, &[("probable: receives", 3)]).await;
    });
}

/// How many threads of that name wait.
fn waiting(name: &str) -> i64 {
    let profile = Profile::of_all("goroutine", Detail::Names);
    let waiting = profile.sample.iter().filter(|sample| {
        profile.label(sample, "thread") == Some(name)
            && profile.label(sample, "wait") == Some("channel")
    });
    waiting.map(|sample| sample.value[0]).sum()
}

/// Time comes, whatever the program does.
fn more_and_more_sleep() {
    block_on(async {
        let more = || {
            spawn_local(tokio::time::sleep(Duration::from_secs(600)).tracked_as("sleeps"));
            thread::spawn(|| thread::sleep(Duration::from_secs(600)));
        };
        in_steps(more, &[]).await;
    });
}

fn as_many_as_before_is_no_growth() {
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
