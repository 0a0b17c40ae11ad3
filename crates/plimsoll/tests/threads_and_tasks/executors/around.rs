//! Events around tasks: concurrent profiles, runtimes that shut down, tasks that change threads.

use std::future::{Future, pending, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use plimsoll::label;
use plimsoll::profile::Detail;
use plimsoll::task::{self, TaskId, TaskState, TrackExt};
use plimsoll_checks::profile::read_with_idle;
use tokio::runtime::Runtime;

use super::kinds::AsyncTask;
use super::record;

fn runtime(workers: usize) -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_time()
        .build()
        .unwrap()
}

fn thread() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// Returns the number of tasks with this name that have not ended.
fn count(name: &str) -> usize {
    let tasks = task::tasks();
    tasks
        .iter()
        .filter(|task| task.name() == Some(name))
        .count()
}

/// Several threads take profiles of both kinds at once, while tasks are polled, created and ended.
/// Each profile contains every task that lives throughout, once.
#[test]
fn profiles_at_once_are_each_whole() {
    const RESIDENTS: usize = 200;
    let runtime = runtime(2);
    let done = Arc::new(AtomicBool::new(false));
    for _ in 0..RESIDENTS {
        let done = done.clone();
        runtime.spawn(
            async move {
                while !done.load(SeqCst) {
                    tokio::task::yield_now().await;
                }
            }
            .tracked_as("resident"),
        );
    }
    let churn = {
        let done = done.clone();
        runtime.spawn(async move {
            while !done.load(SeqCst) {
                let short = async { tokio::task::yield_now().await }.tracked_as("short");
                tokio::spawn(short).await.unwrap();
            }
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(count("resident"), RESIDENTS);
                }
            });
            scope.spawn(|| {
                for _ in 0..3 {
                    let profile = read_with_idle("goroutine", Detail::Names);
                    let residents: i64 = profile
                        .sample
                        .iter()
                        .filter(|sample| profile.label(sample, "task") == Some("resident"))
                        .map(|sample| sample.value[0])
                        .sum();
                    assert_eq!(residents, RESIDENTS as i64);
                }
            });
        }
    });
    done.store(true, SeqCst);
    runtime.block_on(churn).unwrap();
    drop(runtime);
    assert_eq!((count("resident"), count("short")), (0, 0));
}

/// While a runtime drops its tasks, their number only falls.
#[test]
fn profiles_while_a_runtime_shuts_down() {
    const TASKS: usize = 500;
    /// A value whose drop takes a little time.
    struct Slow;
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::yield_now();
        }
    }
    for round in 0..6 {
        let runtime = runtime(2);
        let begun = Arc::new(AtomicUsize::new(0));
        for _ in 0..TASKS {
            let begun = begun.clone();
            let waits = async move {
                let _slow = Slow;
                begun.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_secs(1_000)).await;
            };
            drop(runtime.spawn(waits.tracked_as("ends with its runtime")));
        }
        while begun.load(SeqCst) < TASKS {
            std::thread::yield_now();
        }
        let gone = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut before = TASKS;
                loop {
                    let is_last = gone.load(SeqCst);
                    let tasks = task::tasks();
                    let mine = tasks
                        .iter()
                        .filter(|task| task.name() == Some("ends with its runtime"));
                    let mut now = 0;
                    for task in mine {
                        assert!(!task.is_forgotten(), "{task:?}");
                        now += 1;
                    }
                    assert!(now <= before, "{now} after {before}");
                    before = now;
                    if is_last {
                        assert_eq!(now, 0);
                        return;
                    }
                    // Also takes the other kind of profile, which reads the tasks' stacks.
                    if round == 0 {
                        read_with_idle("goroutine", Detail::Names);
                    }
                }
            });
            if round % 2 == 0 {
                drop(runtime);
            } else {
                runtime.shutdown_timeout(Duration::from_secs(100));
            }
            gone.store(true, SeqCst);
        });
    }
}

/// A task that blocks in place counts as being polled all the time, and its thread does nothing
/// else. Futures that it runs meanwhile are nested in it.
#[test]
fn a_task_that_blocks_in_place_is_running() {
    let runtime = runtime(1);
    let (sender, receiver) = std::sync::mpsc::channel::<(TaskId, u32)>();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let blocks = async move {
        let id = task::current().unwrap();
        let child = tokio::task::block_in_place(|| {
            assert_eq!(task::current(), Some(id));
            sender.send((id, thread())).unwrap();
            goes_on.recv().unwrap();
            // Runs another tracked future inside the blocking call.
            let inner = tokio::runtime::Handle::current().block_on(
                async {
                    tokio::task::yield_now().await;
                    task::current().unwrap()
                }
                .tracked_as("in place"),
            );
            assert_eq!(label::current().get("tenant"), Some("acme"));
            assert_eq!(task::current(), Some(id));
            inner
        });
        assert_eq!(task::current(), Some(id));
        tokio::task::yield_now().await;
        assert_eq!(label::current().get("tenant"), Some("acme"));
        child
    };
    let blocks = runtime.spawn(blocks.tracked_as("blocks").label("tenant", "acme"));
    let (id, on) = receiver.recv().unwrap();
    let blocking = record(id).unwrap();
    assert_eq!(blocking.state(), TaskState::Running);
    assert_eq!(blocking.thread(), Some(on));
    // Another thread takes over the tasks of the only worker.
    let other = runtime.spawn(async { (task::current(), label::current(), thread()) }.tracked());
    let (other_id, labels, elsewhere) = runtime.block_on(other).unwrap();
    assert_ne!(other_id, Some(id));
    assert!(labels.is_empty());
    assert_ne!(elsewhere, on);
    let profile = read_with_idle("goroutine", Detail::Names);
    let mut samples = profile.sample.iter();
    let sample = samples
        .find(|sample| profile.label(sample, "task") == Some("blocks"))
        .expect("it is there");
    assert_eq!(profile.label(sample, "state"), Some("running"));
    go_on.send(()).unwrap();
    let child = runtime.block_on(blocks).unwrap();
    assert!(child > id && record(child).is_none() && record(id).is_none());
}

/// A task that one thread polls after another.
#[test]
fn a_task_that_moves_is_where_it_is_polled() {
    let executor = AsyncTask::new();
    let polled_by = Arc::new(Mutex::new(Vec::new()));
    let task = executor.task(Box::pin({
        let polled_by = polled_by.clone();
        async move {
            let waits = poll_fn(|context| {
                let me = record(task::current().unwrap()).unwrap();
                assert_eq!(me.thread(), Some(thread()));
                assert_eq!(label::current().get("tenant"), Some("acme"));
                let mut polled_by = polled_by.lock().unwrap();
                polled_by.push(thread());
                if polled_by.len() == 20 {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            });
            waits.await;
        }
        .tracked_as("moves")
        .label("tenant", "acme")
    }));
    let mut threads = Vec::new();
    while let Some(runnable) = executor.next() {
        if threads.len() % 2 == 0 {
            threads.push(thread());
            runnable.run();
        } else {
            let elsewhere = std::thread::spawn(move || {
                runnable.run();
                assert_eq!(task::current(), None);
                assert!(label::current().is_empty());
                thread()
            });
            threads.push(elsewhere.join().unwrap());
        }
        assert_eq!(task::current(), None);
        assert!(label::current().is_empty());
    }
    assert_eq!(threads.len(), 20);
    assert_ne!(threads[0], threads[1]);
    assert_eq!(*polled_by.lock().unwrap(), threads);
    assert!(task.is_finished());
}

/// The stack of an earlier wait is gone once the task has moved on. The waker of that wait is
/// dropped only after the poll has begun.
#[test]
fn a_task_that_goes_on_has_no_stack_of_before() {
    async fn first(receiver: tokio::sync::oneshot::Receiver<()>) {
        receiver.await.unwrap();
    }
    async fn then() {
        super::chain::outermost(super::waiting::Keeps::default()).await;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let task = async {
            first(receiver).await;
            then().await;
        };
        let task = task.tracked_as("goes on");
        let id = task.id().unwrap();
        let task = tokio::spawn(task);
        tokio::task::yield_now().await;
        assert_eq!(record(id).unwrap().stacks().count(), 1);
        sender.send(()).unwrap();
        tokio::task::yield_now().await;
        let waiting = record(id).unwrap();
        assert_eq!((waiting.polls(), waiting.stacks().count()), (2, 1));
        super::waiting::is_there("goes on");
        task.abort();
    });
}

/// Tracking does not change whether a future is `Send`.
#[test]
fn futures_that_stay_on_their_thread_are_tracked_there() {
    let executor = async_executor::LocalExecutor::new();
    let shared = std::rc::Rc::new(std::cell::Cell::new(0));
    let task = executor.spawn({
        let shared = shared.clone();
        async move {
            shared.set(1);
            pending::<()>().await;
        }
        .tracked_as("local")
    });
    assert!(executor.try_tick());
    assert_eq!((shared.get(), count("local")), (1, 1));
    drop(task);
    while executor.try_tick() {}
    assert_eq!(count("local"), 0);
    fn is_future(_: impl Future<Output = ()>) {}
    is_future(async move { shared.set(2) }.tracked());
}
