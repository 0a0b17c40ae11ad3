//! Tasks that wait for one another's locks, and tasks that look as if they did.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use plimsoll::sync::tokio::{Mutex, OwnedMutexGuard, RwLock, oneshot};
use plimsoll::task::TrackExt;
use plimsoll_testkit::client::request;
use tokio::task::{AbortHandle, spawn_local, yield_now};

use super::{block_on, expect, in_full, leaks, note_owners, programs};

programs! {
    "heap_rate=0":
        two_lock_in_opposite_order
        three_lock_in_a_circle
        locks_twice
        two_write_in_opposite_order
        others_wait_behind
        the_page_of_threads_has_the_locks_of_tasks
        two_branches_of_a_task_are_both_stuck
        every_form_names_the_lock_and_its_owner
        a_timeout_ends_the_wait
        a_branch_of_a_select_ends_the_wait
        an_aborted_task_gives_up_its_lock
        a_guard_that_was_sent_is_never_proof
        an_owner_that_waits_for_a_message_is_no_part_of_it
        a_wait_that_another_task_took_over_is_not_its_first_tasks
        a_guard_that_was_dropped_has_no_owner
        readers_are_no_owners
        locks_taken_before_the_first_reading_have_no_owner
        a_task_that_waits_for_its_own_sender_is_found_once_the_wait_is_old
        a_request_to_another_task_is_not_listed_before_the_leak_age
        a_sender_that_was_used_or_dropped_is_no_reason_to_wait;
    "heap_rate=0,block_rate=1ns,mutex_fraction=1":
        a_circle_among_recorded_waits;
}

type Lock = Arc<Mutex<()>>;

fn lock() -> Lock {
    Arc::new(Mutex::new(()))
}

fn spawn(name: &str, future: impl Future<Output = ()> + 'static) -> AbortHandle {
    spawn_local(future.tracked_as(name)).abort_handle()
}

/// Runs all tasks until each of them waits: the runtime polls some 60 in a row.
async fn polled() {
    for _ in 0..40 {
        yield_now().await;
    }
}

/// Takes `one`, lets other tasks run, and takes `other`.
async fn takes_both(one: Lock, other: Lock) {
    let _one = one.lock().await;
    polled().await;
    let _other = other.lock().await;
    unreachable!("it is a deadlock");
}

/// Spawns tasks with these names. Each holds a lock and waits for the lock of the next.
async fn circle(names: &[&str]) -> Vec<Lock> {
    let locks: Vec<Lock> = names.iter().map(|_| lock()).collect();
    for (at, name) in names.iter().enumerate() {
        let next = locks[(at + 1) % names.len()].clone();
        spawn(name, takes_both(locks[at].clone(), next));
    }
    polled().await;
    polled().await;
    locks
}

fn two_lock_in_opposite_order() {
    note_owners();
    block_on(async {
        circle(&["a", "b"]).await;
        expect(&[("probable deadlock: a", 1), ("probable deadlock: b", 1)]);
    });
}

fn the_page_of_threads_has_the_locks_of_tasks() {
    note_owners();
    block_on(async {
        let locks = circle(&["a", "b"]).await;
        let behind = locks[0].clone();
        spawn("behind", async move { drop(behind.lock().await) });
        polled().await;
        let server = plimsoll::http::serve("127.0.0.1:0").expect("a free port");
        let answer = request(server.address(), "GET", "/debug/plimsoll/threads");
        let page: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
        let name = |task: &serde_json::Value| {
            assert_eq!(task["kind"], "task");
            let mut records = page["threads"].as_array().unwrap().iter();
            let record = records.find(|record| record["id"] == task["id"]);
            record.expect("it is listed")["name"].as_str().unwrap()
        };
        let locks = page["locks"].as_array().unwrap().iter();
        let locks = locks.map(|lock| {
            assert_eq!(lock["deadlock"], "probable deadlock");
            let mut waiters: Vec<_> = lock["waiters"]
                .as_array()
                .unwrap()
                .iter()
                .map(name)
                .collect();
            waiters.sort_unstable();
            (name(&lock["owner"]), waiters)
        });
        let locks: Vec<_> = locks.collect();
        assert_eq!(locks, [("a", vec!["b", "behind"]), ("b", vec!["a"])]);
    });
}

fn a_circle_among_recorded_waits() {
    let _plimsoll = plimsoll::start();
    block_on(async {
        circle(&["a", "b"]).await;
        expect(&[("probable deadlock: a", 1), ("probable deadlock: b", 1)]);
    });
}

fn three_lock_in_a_circle() {
    note_owners();
    block_on(async {
        circle(&["a", "b", "c"]).await;
        circle(&["d", "e"]).await;
        expect(&[
            ("probable deadlock: a", 1),
            ("probable deadlock: b", 1),
            ("probable deadlock: c", 1),
            ("probable deadlock: d", 1),
            ("probable deadlock: e", 1),
        ]);
    });
}

fn locks_twice() {
    note_owners();
    block_on(async {
        let lock = lock();
        spawn("twice", async move {
            let _lock = lock.lock().await;
            let _again = lock.lock().await;
        });
        polled().await;
        expect(&[("probable deadlock: twice", 1)]);
    });
}

fn two_write_in_opposite_order() {
    note_owners();
    block_on(async {
        let locks: [Rc<RwLock<()>>; 2] = Default::default();
        for (name, at) in [("a", 0), ("b", 1)] {
            let locks = locks.clone();
            spawn(name, async move {
                let _one = locks[at].write().await;
                polled().await;
                let _other = locks[1 - at].read().await;
            });
        }
        polled().await;
        polled().await;
        expect(&[("probable deadlock: a", 1), ("probable deadlock: b", 1)]);
    });
}

fn others_wait_behind() {
    note_owners();
    block_on(async {
        let locks = circle(&["a", "b"]).await;
        for _ in 0..5 {
            let lock = locks[0].clone();
            spawn("behind", async move { drop(lock.lock().await) });
        }
        polled().await;
        expect(&[
            ("behind a probable deadlock: behind", 5),
            ("probable deadlock: a", 1),
            ("probable deadlock: b", 1),
        ]);
    });
}

/// The task has two registrations, and neither lock will be released.
fn two_branches_of_a_task_are_both_stuck() {
    note_owners();
    block_on(async {
        let locks = circle(&["a", "b"]).await;
        spawn("both", async move {
            let _guards = tokio::join!(locks[0].lock(), locks[1].lock());
        });
        polled().await;
        expect(&[
            ("behind a probable deadlock: both", 1),
            ("probable deadlock: a", 1),
            ("probable deadlock: b", 1),
        ]);
    });
}

fn every_form_names_the_lock_and_its_owner() {
    static ACCOUNTS: Mutex<()> = Mutex::named("accounts", ());
    note_owners();
    block_on(async {
        spawn("twice", async {
            let _lock = ACCOUNTS.lock().await;
            let _again = ACCOUNTS.lock().await;
        });
        polled().await;
        expect(&[("probable deadlock: twice", 1)]);
        let mut text = Vec::new();
        plimsoll::dump(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let task = plimsoll::task::tasks();
        let id = task
            .iter()
            .find(|task| task.name() == Some("twice"))
            .unwrap()
            .id();
        let part = format!(
            "goroutine {id} [mutex, task \"twice\", probable deadlock 1: waits for \"accounts\" of goroutine {id}]"
        );
        assert!(text.contains(&part), "{text}");
        let profile = in_full();
        assert_eq!(profile.label(&profile.sample[0], "lock"), Some("accounts"));
        let said = |line: &&str| line.contains("1 tasks are probably deadlocked");
        assert!(profile.comments().iter().any(said));
    });
}

fn a_timeout_ends_the_wait() {
    note_owners();
    block_on(async {
        let locks = [lock(), lock()];
        for (name, at) in [("a", 0), ("b", 1)] {
            let (own, other) = (locks[at].clone(), locks[1 - at].clone());
            spawn(name, async move {
                let _own = own.lock().await;
                polled().await;
                let long = Duration::from_secs(3600);
                drop(tokio::time::timeout(long, other.lock()).await);
            });
        }
        polled().await;
        polled().await;
        expect(&[]);
    });
}

fn a_branch_of_a_select_ends_the_wait() {
    note_owners();
    block_on(async {
        let lock = lock();
        let (sender, receiver) = oneshot::channel::<()>();
        spawn("selects", async move {
            let _lock = lock.lock().await;
            tokio::select! {
                _ = lock.lock() => unreachable!("it is locked"),
                _ = receiver => {}
            }
        });
        polled().await;
        expect(&[]);
        drop(sender);
    });
}

/// Before the abort, the cycle is only probable: no reading proves that a task will not be aborted.
fn an_aborted_task_gives_up_its_lock() {
    note_owners();
    block_on(async {
        let locks = [lock(), lock()];
        let takes = |at: usize| {
            let (own, other) = (locks[at].clone(), locks[1 - at].clone());
            async move {
                let _own = own.lock().await;
                polled().await;
                let _other = other.lock().await;
                std::future::pending().await
            }
        };
        let a = spawn("a", takes(0));
        spawn("b", takes(1));
        polled().await;
        polled().await;
        expect(&[("probable deadlock: a", 1), ("probable deadlock: b", 1)]);
        a.abort();
        assert!(leaks().keys().all(|leak| leak.contains("probable")));
        polled().await;
        // The task holds both locks, and waits for an event that never comes.
        expect(&[("forgotten: b", 1)]);
    });
}

fn a_guard_that_was_sent_is_never_proof() {
    note_owners();
    block_on(async {
        let locks = [lock(), lock()];
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<OwnedMutexGuard<()>>(1);
        let (go, gone) = oneshot::channel::<()>();
        let (a, b) = (locks.clone(), locks.clone());
        spawn("sends", async move {
            sender.send(a[0].clone().lock_owned().await).await.unwrap();
            polled().await;
            drop(a[1].lock().await);
        });
        spawn("waits", async move {
            let _own = b[1].lock().await;
            polled().await;
            drop(b[0].lock().await);
        });
        spawn("receives", async move {
            let guard = receiver.recv().await;
            drop(gone.await);
            drop(guard);
        });
        polled().await;
        polled().await;
        for _ in 0..3 {
            assert!(leaks().keys().all(|leak| leak.contains("probable")));
        }
        go.send(()).unwrap();
        polled().await;
        expect(&[]);
        assert!(plimsoll::task::tasks().is_empty());
    });
}

fn an_owner_that_waits_for_a_message_is_no_part_of_it() {
    note_owners();
    block_on(async {
        let lock = lock();
        let (sender, receiver) = oneshot::channel::<()>();
        let owned = lock.clone();
        spawn("owns", async move {
            let _lock = owned.lock().await;
            drop(receiver.await);
        });
        spawn("waits", async move { drop(lock.lock().await) });
        polled().await;
        expect(&[]);
        drop(sender);
    });
}

/// A future that one task polled first, and another task later.
fn a_wait_that_another_task_took_over_is_not_its_first_tasks() {
    note_owners();
    block_on(async {
        let lock = lock();
        let (owned, taken) = (lock.clone(), lock.clone());
        let (sender, receiver) = oneshot::channel();
        let (keep, kept) = oneshot::channel::<()>();
        spawn("owns", async move {
            let _lock = owned.lock().await;
            let mut wait = Box::pin(async move { drop(taken.lock().await) });
            poll_fn(|context| {
                assert!(wait.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            sender.send(wait).ok().unwrap();
            // The task has one registration, which is not the one for the lock.
            drop(kept.await);
        });
        spawn("took over", async move { receiver.await.unwrap().await });
        polled().await;
        expect(&[]);
        drop(keep);
        polled().await;
        assert!(plimsoll::task::tasks().is_empty());
        assert!(lock.try_lock().is_ok());
    });
}

fn a_guard_that_was_dropped_has_no_owner() {
    note_owners();
    block_on(async {
        let (first, second) = (lock(), lock());
        let untracked = first.clone().lock_owned();
        let (one, other) = (first.clone(), second.clone());
        spawn("a", async move {
            drop(one.lock().await);
            let _other = other.lock().await;
            polled().await;
            drop(one.lock().await);
        });
        yield_now().await;
        let mut untracked = pin!(untracked);
        let guard = untracked.as_mut().await;
        spawn("b", async move { drop(second.lock().await) });
        polled().await;
        polled().await;
        expect(&[]);
        drop(guard);
    });
}

fn readers_are_no_owners() {
    note_owners();
    block_on(async {
        let lock: Rc<RwLock<()>> = Rc::default();
        let written = lock.clone();
        spawn("downgrades", async move {
            let _read = written.write().await.downgrade();
            drop(written.write().await);
        });
        polled().await;
        expect(&[]);
        drop(lock);
    });
}

fn locks_taken_before_the_first_reading_have_no_owner() {
    block_on(async {
        circle(&["a", "b"]).await;
        expect(&[]);
        circle(&["c", "d"]).await;
        expect(&[("probable deadlock: c", 1), ("probable deadlock: d", 1)]);
    });
}

/// The task's own future owns the sender, so only the task could send.
fn a_task_that_waits_for_its_own_sender_is_found_once_the_wait_is_old() {
    note_owners();
    plimsoll::profile::set_leak_age(Duration::from_secs(3600));
    block_on(async {
        spawn("asks itself", async {
            let (sender, receiver) = oneshot::channel::<()>();
            drop(receiver.await);
            drop(sender);
        });
        polled().await;
        expect(&[]);
        plimsoll::profile::set_leak_age(Duration::ZERO);
        expect(&[("probable deadlock: asks itself", 1)]);
        let mut dump = Vec::new();
        plimsoll::dump(&mut dump).unwrap();
        let dump = String::from_utf8(dump).unwrap();
        let part = "waits for \"oneshot\" of goroutine";
        assert!(dump.contains(part), "{dump}");
    });
}

/// The usual request: another task receives the sender, and may answer at any time.
fn a_request_to_another_task_is_not_listed_before_the_leak_age() {
    note_owners();
    block_on(async {
        let (requests, mut received) = tokio::sync::mpsc::channel::<oneshot::Sender<()>>(1);
        let (answer, may_answer) = tokio::sync::oneshot::channel::<()>();
        spawn("asks", async move {
            let (sender, receiver) = oneshot::channel::<()>();
            requests.send(sender).await.unwrap();
            receiver.await.unwrap();
        });
        spawn("answers", async move {
            let sender = received.recv().await.unwrap();
            may_answer.await.unwrap();
            sender.send(()).unwrap();
        });
        polled().await;
        expect(&[]);
        plimsoll::profile::set_leak_age(Duration::ZERO);
        assert!(leaks().keys().all(|leak| leak.contains("probable")));
        answer.send(()).unwrap();
        polled().await;
        expect(&[]);
        assert!(plimsoll::task::tasks().is_empty());
    });
}

/// A message that was sent, or a sender that was dropped, has woken the receiver.
fn a_sender_that_was_used_or_dropped_is_no_reason_to_wait() {
    note_owners();
    plimsoll::profile::set_leak_age(Duration::ZERO);
    block_on(async {
        spawn("sends", async {
            let (sender, receiver) = oneshot::channel::<()>();
            sender.send(()).unwrap();
            receiver.await.unwrap();
            std::future::pending::<()>().await;
        });
        spawn("drops", async {
            let (sender, receiver) = oneshot::channel::<()>();
            drop(sender);
            receiver.await.unwrap_err();
            std::future::pending::<()>().await;
        });
        polled().await;
        assert!(leaks().keys().all(|leak| !leak.contains("deadlock")));
    });
}
