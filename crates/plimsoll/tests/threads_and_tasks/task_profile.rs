//! Tasks in the profile `goroutine`: the whole chain of functions that await one another, for every
//! kind of future that waits, on several executors.

use crate::chain;

use plimsoll_checks::profile::read_with_idle;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use chain::{outermost, second};
use plimsoll::profile::{Detail, Format, frames};
use plimsoll::task::TrackExt;

/// Returns the names in the stacks of the tasks with this name, from the leaf, and their wait
/// reasons.
fn stacks(task: &str) -> Vec<(Vec<String>, String)> {
    let profile = read_with_idle("goroutine", Detail::Full);
    let samples = profile.sample.iter();
    samples
        .filter(|sample| profile.label(sample, "task") == Some(task))
        .map(|sample| {
            let names = profile.names(sample);
            let wait = profile.label(sample, "wait").unwrap_or_default();
            (
                names.into_iter().map(str::to_owned).collect(),
                wait.to_owned(),
            )
        })
        .collect()
}

#[track_caller]
fn has_the_whole_chain(task: &str, what: &str) {
    let stacks = stacks(task);
    let [(names, wait)] = &stacks[..] else {
        panic!("{task}: not one stack: {stacks:#?}");
    };
    chain::is_in(names, task);
    assert_eq!(wait, what, "{names:#?}");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Spawns a task that waits for `future`, and checks how the profile shows it.
async fn waits(task: &'static str, what: &str, future: impl Future + 'static) {
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async move {
            let waiting = tokio::task::spawn_local(
                async move {
                    outermost(future).await;
                }
                .tracked_as(task),
            );
            for _ in 0..5 {
                tokio::task::yield_now().await;
            }
            has_the_whole_chain(task, what);
            waiting.abort();
        })
        .await;
}

const LONG: Duration = Duration::from_secs(1_000);

#[test]
fn every_leaf_of_tokio_has_its_whole_chain() {
    runtime().block_on(async {
        waits("sleep", "sleep", tokio::time::sleep(LONG)).await;
        waits(
            "timeout",
            "sleep",
            tokio::time::timeout(LONG, tokio::time::sleep(LONG)),
        )
        .await;
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<u8>(1);
        waits("receive", "channel", async move { receiver.recv().await }).await;
        drop(sender);
        let (sender, receiver) = tokio::sync::mpsc::channel::<u8>(1);
        sender.send(1).await.unwrap();
        waits("send", "channel", async move { sender.send(2).await }).await;
        drop(receiver);
        let (sender, receiver) = tokio::sync::oneshot::channel::<u8>();
        waits("oneshot", "channel", receiver).await;
        drop(sender);
        let (sender, mut receiver) = tokio::sync::watch::channel(1_u8);
        receiver.borrow_and_update();
        waits("watch", "channel", async move { receiver.changed().await }).await;
        drop(sender);
        let (sender, mut receiver) = tokio::sync::broadcast::channel::<u8>(1);
        waits("broadcast", "channel", async move { receiver.recv().await }).await;
        drop(sender);

        let mutex = std::sync::Arc::new(tokio::sync::Mutex::new(1));
        let held = mutex.clone().lock_owned().await;
        waits("mutex", "mutex", async move { drop(mutex.lock().await) }).await;
        drop(held);
        let lock = std::sync::Arc::new(tokio::sync::RwLock::new(1));
        let held = lock.clone().write_owned().await;
        waits(
            "read",
            "rwlock read",
            async move { drop(lock.read().await) },
        )
        .await;
        drop(held);
        let semaphore = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
        waits("semaphore", "semaphore", async move {
            drop(semaphore.acquire().await)
        })
        .await;
        let notify = tokio::sync::Notify::new();
        waits("notify", "notify", async move { notify.notified().await }).await;

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = tokio::net::TcpStream::connect(address).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        waits("accept", "io", async move { listener.accept().await }).await;
        waits("read stream", "io", async move {
            loop {
                server.readable().await.unwrap();
                // The wake may have been spurious.
                let _ = server.try_read(&mut [0; 1]);
            }
        })
        .await;
        drop(client);

        let forever = tokio::task::spawn(std::future::pending::<()>());
        waits("join", "join", forever).await;
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let blocking = tokio::task::spawn_blocking(move || ends.recv());
        waits("spawn_blocking", "join", blocking).await;
        drop(end);
        waits("join!", "sleep", async {
            tokio::join!(tokio::time::sleep(LONG), std::future::pending::<()>())
        })
        .await;
        waits("boxed", "sleep", {
            let boxed: std::pin::Pin<Box<dyn Future<Output = ()>>> =
                Box::pin(tokio::time::sleep(LONG));
            boxed
        })
        .await;
    });
}

#[test]
fn every_branch_of_a_select_is_there() {
    runtime().block_on(async {
        let task = tokio::spawn(
            async {
                let (_sender, mut receiver) = tokio::sync::mpsc::channel::<u8>(1);
                tokio::select! {
                    _ = outermost(tokio::time::sleep(LONG)) => {}
                    _ = receiver.recv() => {}
                    _ = second(tokio::time::sleep(LONG)) => {}
                }
            }
            .tracked_as("selects"),
        );
        tokio::task::yield_now().await;
        let mut dump = Vec::new();
        plimsoll::dump(&mut dump).unwrap();
        let dump = String::from_utf8(dump).unwrap();
        let mine = dump
            .split("\n\n")
            .find(|record| record.contains("task \"selects\""))
            .expect("it is there");
        assert_eq!(mine.matches("and waiting in\n").count(), 2, "{mine}");
        assert!(mine.contains("chain::outermost"), "{mine}");
        let (_, created) = mine.split_once("created by ").expect("it has a creator");
        let (function, place) = created.split_once('\n').unwrap();
        // The function that calls `spawn`, and its file.
        assert!(function.contains("task_profile::"), "{mine}");
        assert!(!function.contains("Tracked"), "{mine}");
        assert!(
            place.starts_with("\t/") && place.contains("task_profile.rs:"),
            "{mine}"
        );
        task.abort();
    });
}

#[test]
fn executors_of_all_kinds_will_do() {
    // A minimal executor: a poll and a waker.
    let mut by_hand = pin!(outermost(std::future::pending::<()>()).tracked_as("by hand"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(by_hand.as_mut().poll(&mut context).is_pending());
    let [(names, wait)] = &stacks("by hand")[..] else {
        panic!("not one");
    };
    assert_eq!(wait, "no waker");
    assert!(names[0].starts_with('['), "{names:?}");

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            runtime.spawn(
                async {
                    outermost(tokio::time::sleep(LONG)).await;
                }
                .tracked_as("on many threads")
                .label("tenant", "a"),
            )
        })
        .collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let profile = read_with_idle("goroutine", Detail::Full);
        let count: i64 = profile
            .sample
            .iter()
            .filter(|sample| profile.label(sample, "task") == Some("on many threads"))
            .filter(|sample| profile.label(sample, "tenant") == Some("a"))
            .filter(|sample| profile.label(sample, "wait") == Some("sleep"))
            .map(|sample| sample.value[0])
            .sum();
        if count == 10 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{count} of 10");
        std::thread::yield_now();
    }
    has_the_whole_chain("on many threads", "sleep");
    drop(tasks);
}

#[test]
fn the_text_has_their_labels() {
    let mut task = Box::pin(
        outermost(std::future::pending::<()>())
            .tracked_as("in text")
            .label("tenant", "x y"),
    );
    let mut context = Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    let mut text = Vec::new();
    let goroutine = plimsoll::profile::lookup("goroutine").unwrap();
    goroutine.write_to(&mut text, Format::Text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains(
            r#"# labels: {"state":"waiting", "task":"in text", "tenant":"x y", "wait":"no waker"}"#
        ),
        "{text}"
    );
}

async fn keeps_its_waker() {
    let mut kept = None;
    std::future::poll_fn(|context| {
        kept = Some(context.waker().clone());
        std::task::Poll::<()>::Pending
    })
    .await;
}

#[test]
fn addresses_of_a_tasks_stacks_have_functions_files_and_lines() {
    let mut task = pin!(keeps_its_waker().tracked_as("named"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    let tasks = plimsoll::task::tasks();
    let record = tasks.iter().find(|task| task.name() == Some("named"));
    let stacks: Vec<_> = record.expect("it was polled").stacks().collect();
    let [stack] = stacks[..] else {
        panic!("not one stack: {stacks:?}");
    };
    let frames = frames(stack, Detail::Full);
    assert!(
        frames.iter().all(|frame| stack.contains(&frame.address)),
        "{frames:#?}"
    );
    let named = frames.iter().find(|frame| {
        let function = frame.function.as_deref();
        function.is_some_and(|function| function.contains("::keeps_its_waker::"))
    });
    let named = named.unwrap_or_else(|| panic!("{frames:#?}"));
    if cfg!(feature = "symbolize") {
        assert!(
            named
                .file
                .as_ref()
                .unwrap()
                .ends_with("threads_and_tasks/task_profile.rs")
        );
        assert!(named.line.is_some());
    }
}
