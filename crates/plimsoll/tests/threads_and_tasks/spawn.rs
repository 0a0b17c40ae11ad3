//! `plimsoll::task::spawn`, `spawn_local` and `JoinSet`: they behave as tokio's, and track tasks.

use plimsoll_checks::profile::read_with_idle;
use std::collections::HashSet;
use std::future::{Future, pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use plimsoll::label;
use plimsoll::profile::Detail;
use plimsoll::task::{self, JoinSet, TaskId, TaskRecord, TaskState, TrackExt};
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, yield_now};

fn single() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn multi() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// Returns the record of the task that is being polled.
fn me() -> TaskRecord {
    record(task::current().expect("it is tracked")).expect("it is there")
}

fn record(id: TaskId) -> Option<TaskRecord> {
    task::tasks().into_iter().find(|task| task.id() == id)
}

/// Checks that the task was created on this line of this file.
#[track_caller]
fn is_of_line(task: &TaskRecord, line: u32) {
    let location = task.location();
    assert_eq!((location.file(), location.line()), (file!(), line));
}

/// Returns a future that reports its task's number and then waits for ever.
fn announces(to: &Arc<Mutex<Vec<TaskId>>>) -> impl Future<Output = ()> + Send + 'static {
    let to = to.clone();
    async move {
        to.lock().unwrap().push(task::current().unwrap());
        pending().await
    }
}

#[test]
fn a_task_is_where_its_caller_spawned_it_with_parent_and_labels() {
    for runtime in [single(), multi()] {
        runtime.block_on(async {
            let parent = async {
                let _tenant = label::with([("tenant", "acme")]);
                let my_id = task::current();
                let (child, line) = (task::spawn(async { me() }), line!());
                (my_id, child, line)
            };
            let (parent, child, line) = tokio::spawn(parent.tracked()).await.unwrap();
            let child = child.await.unwrap();
            is_of_line(&child, line);
            assert!(parent.is_some());
            assert_eq!(child.parent(), parent);
            assert_eq!(child.labels().to_string(), r#"{"tenant":"acme"}"#);
            assert_eq!(child.state(), TaskState::Running);
            assert!(!child.is_nested());
            assert!(
                child
                    .type_name()
                    .contains("threads_and_tasks::spawn::a_task_is_where"),
                "{}",
                child.type_name()
            );
            assert!(record(child.id()).is_none(), "it is over");
            // A task that no task spawned has no parent.
            let orphan = task::spawn(async { me() }).await.unwrap();
            assert_eq!(orphan.parent(), None);
            assert!(orphan.labels().is_empty());
        });
    }
}

#[test]
fn spawn_returns_tokios_handle() {
    let runtime = single();
    runtime.block_on(async {
        let handle: tokio::task::JoinHandle<u8> = task::spawn(async { 7 });
        assert_eq!(handle.await.unwrap(), 7);
        let panics = task::spawn(async { panic!("a panic requested by the test") });
        assert!(panics.await.unwrap_err().is_panic());

        let ids = Arc::default();
        let waits = task::spawn(announces(&ids));
        yield_now().await;
        let id = ids.lock().unwrap()[0];
        assert!(record(id).is_some());
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        assert!(record(id).is_none(), "it was dropped");
    });
    // A detached task ends with the runtime.
    let ids = Arc::default();
    runtime.block_on(async {
        drop(task::spawn(announces(&ids)));
        yield_now().await;
    });
    let id = ids.lock().unwrap()[0];
    assert!(record(id).is_some());
    drop(runtime);
    assert!(record(id).is_none());
}

#[test]
#[should_panic(expected = "there is no reactor running")]
fn spawn_without_a_runtime_panics_as_tokios_does() {
    drop(task::spawn(pending::<()>()));
}

#[test]
fn local_tasks_need_not_be_send() {
    let runtime = single();
    let ids: Arc<Mutex<Vec<TaskId>>> = Arc::default();
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let counter = std::rc::Rc::new(std::cell::Cell::new(0));
        let counts = {
            let counter = counter.clone();
            async move {
                counter.set(counter.get() + 1);
                yield_now().await;
                counter.set(counter.get() + 1);
                me()
            }
        };
        let (task, line) = (task::spawn_local(counts), line!());
        let record = task.await.unwrap();
        assert_eq!((counter.get(), record.polls()), (2, 2));
        is_of_line(&record, line);
        drop(task::spawn_local(announces(&ids)));
        yield_now().await;
    });
    let id = ids.lock().unwrap()[0];
    assert_eq!(record(id).unwrap().state(), TaskState::NoWaker);
    // The set owns the tasks, not the `LocalSet`.
    drop(local);
    assert!(record(id).is_none());
}

#[test]
fn each_way_into_a_set_is_tracked_and_located() {
    let (runtime, other) = (single(), multi());
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let lines = Mutex::new(HashSet::new());
        let here = |line| {
            assert!(lines.lock().unwrap().insert(line));
        };
        let mut set = JoinSet::new();
        here(line!() + 1);
        set.spawn(async { Some(me()) });
        here(line!() + 1);
        set.spawn_on(async { Some(me()) }, other.handle());
        here(line!() + 1);
        set.spawn_local(async { Some(me()) });
        here(line!() + 1);
        set.spawn_local_on(async { Some(me()) }, &local);
        // Blocking calls run on threads and have no task.
        set.spawn_blocking(|| task::current().map(|_| me()));
        set.spawn_blocking_on(|| task::current().map(|_| me()), other.handle());
        assert_eq!(set.len(), 6);
        let mut found = HashSet::new();
        let mut threads = 0;
        while let Some(record) = set.join_next().await {
            match record.unwrap() {
                Some(record) => {
                    assert_eq!(record.location().file(), file!());
                    found.insert(record.location().line());
                }
                None => threads += 1,
            }
        }
        assert_eq!(threads, 2);
        assert_eq!(found, lines.into_inner().unwrap());
        assert!(set.is_empty());
    });
}

/// The methods as tokio's documentation describes them.
#[test]
fn a_set_has_tokios_methods() {
    single().block_on(async {
        let mut set: JoinSet<u32> = (0..10).map(|number| async move { number }).collect();
        set.extend((10..20).map(|number| async move { number }));
        assert_eq!(set.len(), 20);
        assert_eq!(format!("{set:?}"), "JoinSet { len: 20 }");
        let mut all = set.join_all().await;
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());

        let mut set = JoinSet::default();
        let first = set.spawn(async { 1 });
        assert!(set.try_join_next().is_none());
        let (id, value) = set.join_next_with_id().await.unwrap().unwrap();
        assert_eq!((id, value), (first.id(), 1));
        let second = set.spawn(async { 2 });
        yield_now().await;
        let joined = set.try_join_next_with_id().unwrap().unwrap();
        assert_eq!(joined, (second.id(), 2));
        set.spawn(async { 3 });
        let third = poll_fn(|context| set.poll_join_next(context)).await;
        assert_eq!(third.unwrap().unwrap(), 3);
        let fourth = set.spawn(async { 4 });
        let joined = poll_fn(|context| set.poll_join_next_with_id(context)).await;
        assert_eq!(joined.unwrap().unwrap(), (fourth.id(), 4));
        assert!(set.join_next().await.is_none());
        assert!(set.join_next_with_id().await.is_none());
        assert!(set.try_join_next_with_id().is_none());

        let waits = set.spawn(pending());
        waits.abort();
        let aborted = set.join_next().await.unwrap().unwrap_err();
        assert!(aborted.is_cancelled() && aborted.id() == waits.id());
        set.spawn(async { panic!("a panic requested by the test") });
        assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
    });
}

#[test]
fn tasks_end_with_their_set_unless_they_are_detached() {
    single().block_on(async {
        let ids: Arc<Mutex<Vec<TaskId>>> = Arc::default();
        let there = || {
            let tasks = task::tasks();
            let ids = ids.lock().unwrap();
            tasks.iter().filter(|task| ids.contains(&task.id())).count()
        };
        let mut set = JoinSet::new();
        for _ in 0..3 {
            set.spawn(announces(&ids));
        }
        yield_now().await;
        assert_eq!(there(), 3);
        set.shutdown().await;
        assert_eq!((there(), set.len()), (0, 0));

        set.spawn(announces(&ids));
        yield_now().await;
        set.abort_all();
        assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
        assert_eq!(there(), 0);

        set.spawn(announces(&ids));
        yield_now().await;
        drop(set);
        yield_now().await;
        assert_eq!(there(), 0);

        let mut set = JoinSet::new();
        let detached = set.spawn(announces(&ids));
        yield_now().await;
        set.detach_all();
        drop(set);
        yield_now().await;
        assert_eq!(there(), 1);
        detached.abort();
        yield_now().await;
        assert_eq!(there(), 0);
    });
}

/// A task that waits for a set shows a function of the set in its stack.
#[test]
fn waiting_for_a_set_is_shown_as_a_join() {
    async fn waits_for_its_set() {
        let mut set = JoinSet::new();
        set.spawn(pending::<()>());
        set.join_next().await;
    }
    single().block_on(async {
        let task = tokio::spawn(waits_for_its_set().tracked_as("joins"));
        yield_now().await;
        let profile = read_with_idle("goroutine", Detail::Full);
        let mut samples = profile.sample.iter();
        let sample = samples
            .find(|sample| profile.label(sample, "task") == Some("joins"))
            .expect("it is there");
        let names = profile.names(sample);
        assert!(
            names.iter().any(|name| name.contains("waits_for_its_set")),
            "{names:?}"
        );
        assert_eq!(profile.label(sample, "wait"), Some("join"), "{names:?}");
        task.abort();
    });
}

/// The types have the same auto traits and signatures as tokio's.
#[test]
fn the_types_are_as_tokios() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_unpin<T: Unpin>() {}
    is_send_and_sync::<JoinSet<u8>>();
    is_unpin::<JoinSet<std::marker::PhantomPinned>>();
    fn is_send<T: Send>(_: T) {}
    single().block_on(async {
        let mut set = JoinSet::<u8>::new();
        is_send(set.join_next());
        is_send(set.join_next_with_id());
        is_send(set.shutdown());
        is_send(set.join_all());
    });
    let mut set = JoinSet::<u8>::new();
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(matches!(
        set.poll_join_next(&mut context),
        Poll::Ready(None)
    ));
    let _: fn(std::future::Ready<u8>) -> task::JoinHandle<u8> = task::spawn;
    let _: fn(std::future::Ready<u8>) -> task::JoinHandle<u8> = task::spawn_local;
}
