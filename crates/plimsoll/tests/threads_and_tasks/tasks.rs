//! Tracked futures, checked against the contract of futures and wakers, and against their own
//! records.

use plimsoll_testkit::child;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll::label;
use plimsoll::task::{self, TaskId, TaskRecord, TaskState, TrackExt, Tracked};

/// An executor's waker that counts its wakes.
#[derive(Default)]
struct Counts {
    wakes: AtomicUsize,
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

/// An executor of one task, which the test polls itself.
struct Hand {
    counts: Arc<Counts>,
    waker: Waker,
}

impl Hand {
    fn new() -> Self {
        let counts = Arc::new(Counts::default());
        Self {
            waker: counts.clone().into(),
            counts,
        }
    }

    fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    fn wakes(&self) -> usize {
        self.counts.wakes.load(Ordering::SeqCst)
    }

    /// Returns how many clones of the waker exist beside the one held here.
    fn clones(&self) -> usize {
        Arc::strong_count(&self.counts) - 2
    }
}

/// Wakers that a future kept, for the test to use.
type Kept = Arc<Mutex<Vec<Waker>>>;

/// A future that waits for `polls` polls and keeps a clone of the waker each time.
struct Keeps {
    kept: Kept,
    polls: usize,
}

impl Future for Keeps {
    type Output = usize;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        if self.polls == 0 {
            return Poll::Ready(7);
        }
        self.polls -= 1;
        self.kept.lock().unwrap().push(context.waker().clone());
        Poll::Pending
    }
}

fn keeps(polls: usize) -> (Kept, Keeps) {
    let kept = Kept::default();
    let future = Keeps {
        kept: kept.clone(),
        polls,
    };
    (kept, future)
}

fn record(id: Option<TaskId>) -> Option<TaskRecord> {
    let id = id.expect("a slot is free");
    task::tasks().into_iter().find(|task| task.id() == id)
}

/// Calls `does` for `seconds`, then until it returns true, at most 60 seconds longer. A concurrent
/// thread may not have run before.
fn for_seconds(seconds: u64, mut does: impl FnMut() -> bool) {
    let start = Instant::now();
    let [seconds, most] = [seconds, seconds + 60].map(Duration::from_secs);
    let mut enough = false;
    while start.elapsed() < seconds || !enough && start.elapsed() < most {
        enough = does();
    }
}

fn state(id: Option<TaskId>) -> Option<TaskState> {
    record(id).map(|record| record.state())
}

#[test]
fn a_task_goes_through_its_states() {
    let hand = Hand::new();
    let (kept, future) = keeps(2);
    let mut tracked = Box::pin(future.tracked_as("keeper").label("tenant", "a"));
    let id = tracked.id();
    let new = record(id).unwrap();
    assert_eq!(new.state(), TaskState::New);
    assert_eq!((new.name(), new.polls()), (Some("keeper"), 0));
    assert!(new.type_name().ends_with("threads_and_tasks::tasks::Keeps"));
    assert!(new.location().file().ends_with("tasks.rs"));
    assert_eq!(new.labels().to_string(), r#"{"tenant":"a"}"#);
    assert_eq!(new.parent(), None);
    assert_eq!(new.stacks().count(), 0);

    assert!(hand.poll(tracked.as_mut()).is_pending());
    let waiting = record(id).unwrap();
    assert_eq!((waiting.state(), waiting.polls()), (TaskState::Waiting, 1));
    assert_eq!(waiting.stacks().count(), 1);
    assert!(!waiting.is_forgotten());
    // The clock of waits lags by up to a tick of the kernel.
    let deadline = Instant::now() + Duration::from_secs(60);
    while record(id).unwrap().waited().unwrap() < Duration::from_millis(2) {
        assert!(Instant::now() < deadline, "the thread has not waited");
    }

    let waker = kept.lock().unwrap().pop().unwrap();
    waker.wake_by_ref();
    assert_eq!(hand.wakes(), 1);
    assert_eq!(state(id), Some(TaskState::Runnable));
    assert!(hand.poll(tracked.as_mut()).is_pending());
    assert_eq!(state(id), Some(TaskState::Waiting));
    // Wakes by value: both registrations are gone.
    waker.wake();
    kept.lock().unwrap().pop().unwrap().wake();
    assert_eq!(hand.wakes(), 3);
    assert_eq!(hand.clones(), 0);
    assert_eq!(hand.poll(tracked.as_mut()), Poll::Ready(7));
    assert_eq!(state(id), None, "completed futures are not tasks");
    assert_eq!(hand.clones(), 0);
    drop(tracked);
    assert_eq!(state(id), None);
}

#[test]
fn a_polled_task_is_running_and_a_dropped_one_is_dropping() {
    struct Asks(Arc<Mutex<Vec<TaskState>>>);
    impl Future for Asks {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let record = record(task::current()).unwrap();
            // SAFETY: has no preconditions.
            let here = unsafe { libc::gettid() };
            assert_eq!(record.thread(), Some(here as u32));
            self.0.lock().unwrap().push(record.state());
            Poll::Pending
        }
    }
    impl Drop for Asks {
        fn drop(&mut self) {
            let tasks = task::tasks();
            let mine = tasks.iter().find(|task| task.name() == Some("asks"));
            self.0.lock().unwrap().extend(mine.map(TaskRecord::state));
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tracked = Box::pin(Asks(seen.clone()).tracked_as("asks"));
    assert!(Hand::new().poll(tracked.as_mut()).is_pending());
    assert_eq!(task::current(), None);
    drop(tracked);
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, [TaskState::Running, TaskState::Dropping]);
}

#[test]
fn a_clone_of_ours_is_one_of_the_executors_while_it_lives() {
    let hand = Hand::new();
    let (kept, future) = keeps(100);
    let mut tracked = Box::pin(future.tracked());
    assert_eq!(hand.clones(), 0);
    for _ in 0..3 {
        assert!(hand.poll(tracked.as_mut()).is_pending());
        assert_eq!(hand.clones(), 1);
    }
    // The wakers outlive the future.
    let id = tracked.id();
    drop(tracked);
    assert_eq!(hand.clones(), 1);
    assert_eq!(state(id), None);
    let kept = std::mem::take(&mut *kept.lock().unwrap());
    assert_eq!(kept.len(), 3);
    assert!(kept[0].will_wake(&kept[1]) && kept[1].will_wake(&kept[2]));
    let another = kept[0].clone();
    drop(kept);
    assert_eq!(hand.clones(), 1);
    another.wake();
    assert_eq!((hand.clones(), hand.wakes()), (0, 1));
}

#[test]
fn a_waker_is_the_same_as_long_as_there_are_registrations() {
    struct Notes(Vec<(bool, Waker)>);
    impl Future for &mut Notes {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let before = self.0.last();
            let same = before.is_some_and(|(_, before)| before.will_wake(context.waker()));
            self.0.push((same, context.waker().clone()));
            Poll::Pending
        }
    }
    let mut notes = Notes(Vec::new());
    let (first, second) = (Hand::new(), Hand::new());
    {
        let mut tracked = pin!((&mut notes).tracked());
        for hand in [&first, &first, &second, &second, &first, &second] {
            assert!(hand.poll(tracked.as_mut()).is_pending());
        }
    }
    let same: Vec<bool> = notes.0.iter().map(|(same, _)| *same).collect();
    assert_eq!(same, [false, true, false, true, false, false]);
    assert_eq!((first.clones(), second.clones()), (1, 1));
    // Each waker wakes the executor that it came from.
    for (at, wakes) in [
        (1, (1, 0)),
        (2, (1, 1)),
        (3, (1, 2)),
        (4, (2, 2)),
        (5, (2, 3)),
    ] {
        notes.0[at].1.wake_by_ref();
        assert_eq!((first.wakes(), second.wakes()), wakes);
    }
    notes.0.clear();
    assert_eq!((first.clones(), second.clones()), (0, 0));
}

#[test]
fn tasks_that_change_executors_do_not_use_more_and_more_memory() {
    child::run(
        "tasks_that_change_executors_do_not_use_more_and_more_memory",
        "",
        changes_executors,
    );
}

fn changes_executors() {
    let kept = Kept::default();
    let hands: Vec<Hand> = (0..100).map(|_| Hand::new()).collect();
    let mut tracked = Box::pin(
        Keeps {
            kept: kept.clone(),
            polls: 10_000,
        }
        .tracked(),
    );
    for round in 0..1_000 {
        let hand = &hands[round % 100];
        assert!(hand.poll(tracked.as_mut()).is_pending());
        if round % 10 == 9 {
            kept.lock().unwrap().clear();
        }
    }
    assert_eq!(hands.iter().map(Hand::clones).sum::<usize>(), 0);
    let before = plimsoll::mem_stats().other_sys;
    for round in 0..9_000 {
        let hand = &hands[round % 100];
        assert!(hand.poll(tracked.as_mut()).is_pending());
        if round % 10 == 9 {
            kept.lock().unwrap().clear();
        }
    }
    let grown = plimsoll::mem_stats().other_sys.saturating_sub(before);
    assert!(grown < 4 << 20, "{grown} bytes more");
}

#[test]
fn wakers_work_after_the_task_is_done_or_gone_and_from_anywhere() {
    let hand = Hand::new();
    let (kept, future) = keeps(1);
    let mut tracked = Box::pin(future.tracked());
    assert!(hand.poll(tracked.as_mut()).is_pending());
    assert_eq!(hand.poll(tracked.as_mut()), Poll::Ready(7));
    let waker = kept.lock().unwrap().pop().unwrap();
    waker.wake_by_ref();
    drop(tracked);
    waker.wake_by_ref();
    let elsewhere = std::thread::spawn(move || {
        let another = waker.clone();
        another.wake();
        waker.wake();
    });
    elsewhere.join().unwrap();
    assert_eq!((hand.wakes(), hand.clones()), (4, 0));
}

#[test]
fn a_panic_in_a_poll_leaves_everything_in_order() {
    struct Panics(Kept);
    impl Future for Panics {
        type Output = ();
        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            self.0.lock().unwrap().push(context.waker().clone());
            panic!("a panic requested by the test");
        }
    }
    let hand = Hand::new();
    let kept = Kept::default();
    let mut tracked = Box::pin(Panics(kept.clone()).tracked().label("tenant", "a"));
    let id = tracked.id();
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hand.poll(tracked.as_mut())));
    assert!(result.is_err());
    assert_eq!(task::current(), None);
    assert_eq!(label::current(), label::Labels::NONE);
    assert_eq!(state(id), Some(TaskState::Waiting));
    drop(tracked);
    assert_eq!(state(id), None);
    kept.lock().unwrap().clear();
    assert_eq!(hand.clones(), 0);

    /// A future that also panics when it is dropped.
    struct PanicsLast;
    impl Future for PanicsLast {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }
    impl Drop for PanicsLast {
        fn drop(&mut self) {
            panic!("a panic requested by the test");
        }
    }
    let tracked = PanicsLast.tracked();
    assert_eq!(record(tracked.id()).unwrap().thread(), None);
    let id = tracked.id();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(tracked))).is_err());
    assert_eq!(state(id), None);
}

#[test]
fn a_task_can_wake_itself_during_its_poll() {
    struct Yields(bool);
    impl Future for Yields {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }
    let hand = Hand::new();
    let mut tracked = Box::pin(Yields(false).tracked());
    let id = tracked.id();
    assert!(hand.poll(tracked.as_mut()).is_pending());
    let yielded = record(id).unwrap();
    assert_eq!(yielded.state(), TaskState::Runnable);
    assert_eq!(
        yielded.stacks().count(),
        1,
        "the place of the yield is recorded"
    );
    assert_eq!((hand.wakes(), hand.clones()), (1, 0));
    assert!(hand.poll(tracked.as_mut()).is_ready());
}

#[test]
fn a_task_without_a_waker_is_forgotten() {
    let hand = Hand::new();
    let mut pending = Box::pin(std::future::pending::<()>().tracked());
    assert!(!record(pending.id()).unwrap().is_forgotten(), "it is new");
    assert!(hand.poll(pending.as_mut()).is_pending());
    let forgotten = record(pending.id()).unwrap();
    assert_eq!(forgotten.state(), TaskState::NoWaker);
    assert!(forgotten.is_forgotten());

    // The task's waker was dropped without a wake.
    let (kept, future) = keeps(5);
    let mut dropped = Box::pin(future.tracked());
    assert!(hand.poll(dropped.as_mut()).is_pending());
    assert!(!record(dropped.id()).unwrap().is_forgotten());
    kept.lock().unwrap().clear();
    assert!(record(dropped.id()).unwrap().is_forgotten());

    // The task was woken, if only once, and during a poll.
    let (kept, future) = keeps(5);
    let mut woken = Box::pin(future.tracked());
    assert!(hand.poll(woken.as_mut()).is_pending());
    kept.lock().unwrap().pop().unwrap().wake();
    assert_eq!(state(woken.id()), Some(TaskState::Runnable));
    assert!(!record(woken.id()).unwrap().is_forgotten());
}

/// A task that is polled without a wake is never proved forgotten.
#[test]
fn a_task_polled_without_a_wake_is_never_forgotten() {
    let hand = Hand::new();
    let mut busy = Box::pin(std::future::pending::<()>().tracked());
    assert!(hand.poll(busy.as_mut()).is_pending());
    assert!(hand.poll(busy.as_mut()).is_pending());
    let busy = record(busy.id()).unwrap();
    assert_eq!(busy.state(), TaskState::NoWaker);
    assert!(!busy.is_forgotten());

    let mut idle = Box::pin(std::future::pending::<()>().tracked());
    let mut context = Context::from_waker(Waker::noop());
    assert!(idle.as_mut().poll(&mut context).is_pending());
    assert!(!record(idle.id()).unwrap().is_forgotten());

    // The parent may poll the child without a wake.
    let child = std::future::pending::<()>().tracked();
    let child_id = child.id();
    let mut parent = Box::pin(child.tracked());
    assert!(hand.poll(parent.as_mut()).is_pending());
    let child = record(child_id).unwrap();
    assert!(child.is_nested() && !child.is_forgotten());
    assert!(record(parent.id()).unwrap().is_forgotten());
}

#[test]
fn children_have_parents_labels_and_stacks_of_their_own() {
    let hand = Hand::new();
    let (kept, leaf) = keeps(1);
    let ids = Arc::new(Mutex::new(Vec::new()));
    let mut parent = Box::pin({
        let ids = ids.clone();
        async move {
            let child = leaf.tracked_as("child");
            ids.lock().unwrap().push(child.id());
            child.await
        }
        .tracked_as("parent")
        .label("tenant", "a")
    });
    let parent_id = parent.id();
    assert!(hand.poll(parent.as_mut()).is_pending());
    let child = record(ids.lock().unwrap()[0]).unwrap();
    assert_eq!(child.parent(), parent_id);
    assert_eq!(child.labels().get("tenant"), Some("a"));
    assert!(child.is_nested());
    let parents: Vec<_> = record(parent_id).unwrap().stacks().collect();
    let childs: Vec<_> = child.stacks().collect();
    assert_eq!((parents.len(), childs.len()), (1, 1));
    assert!(!record(parent_id).unwrap().is_nested());
    // The child's registration is one registration of the parent's, and that is one of the
    // executor's.
    assert_eq!(hand.clones(), 1);
    kept.lock().unwrap().pop().unwrap().wake();
    assert_eq!((hand.clones(), hand.wakes()), (0, 1));
    assert_eq!(state(parent_id), Some(TaskState::Runnable));
    assert_eq!(hand.poll(parent.as_mut()), Poll::Ready(7));
}

#[test]
fn labels_are_those_of_the_task_while_it_is_polled() {
    struct Looks;
    impl Future for Looks {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            assert_eq!(label::current().get("task"), Some("1"));
            assert_eq!(label::current().get("thread"), Some("2"));
            // Sets the labels for good.
            label::set(label::current().and([("task", "3")]));
            Poll::Pending
        }
    }
    let _thread = label::with([("thread", "2")]);
    let mut tracked = Box::pin(Looks.tracked().label("task", "1"));
    assert!(Hand::new().poll(tracked.as_mut()).is_pending());
    assert_eq!(label::current().to_string(), r#"{"thread":"2"}"#);
    let labels = record(tracked.id()).unwrap().labels();
    assert_eq!(labels.to_string(), r#"{"task":"3", "thread":"2"}"#);
}

#[test]
fn tracked_futures_have_the_traits_of_their_futures() {
    fn is_send<T: Send>(_: &T) {}
    fn is_sync<T: Sync>(_: &T) {}
    fn is_unpin<T: Unpin>(_: &T) {}
    let plain = std::future::ready(1).tracked();
    is_send(&plain);
    is_sync(&plain);
    is_unpin(&plain);
    assert_eq!(
        size_of::<Tracked<std::future::Ready<u64>>>(),
        size_of::<std::future::Ready<u64>>() + 16
    );
    // A future that is not `Send` is tracked as well.
    let local = RefCell::new(0);
    let mut tracked = pin!(
        async {
            *local.borrow_mut() += 1;
        }
        .tracked()
    );
    assert!(Hand::new().poll(tracked.as_mut()).is_ready());
    assert_eq!(*local.borrow(), 1);
}

/// A queue of tasks and the threads that poll them, in minimal form.
#[derive(Default)]
struct Pool {
    ready: Mutex<VecDeque<Arc<Task>>>,
}

struct Task {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    is_queued: AtomicBool,
    pool: Arc<Pool>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::SeqCst) {
            let pool = self.pool.clone();
            pool.ready.lock().unwrap().push_back(self);
        }
    }
}

impl Pool {
    fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Task {
            future: Mutex::new(Some(Box::pin(future))),
            is_queued: AtomicBool::new(true),
            pool: self.clone(),
        });
        self.ready.lock().unwrap().push_back(task);
    }

    /// Polls one task that is ready; returns false if none is.
    fn run_one(&self) -> bool {
        let Some(task) = self.ready.lock().unwrap().pop_front() else {
            return false;
        };
        task.is_queued.store(false, Ordering::SeqCst);
        let mut future = task.future.lock().unwrap();
        if let Some(mut running) = future.take() {
            let waker = task.clone().into();
            if running
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                *future = Some(running);
            }
        }
        true
    }
}

/// Yields to other tasks, through a clone of the waker.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        waker.wake();
        Poll::Pending
    })
    .await;
}

/// Tasks are created in the order of their numbers and run for ever, while others come and go. Each
/// profile contains all tasks up to some number, each once.
#[test]
fn a_profile_is_a_cut() {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").map_or(1, |seconds| {
        seconds.parse().expect("PLIMSOLL_SOAK_SECONDS is a number")
    });
    let done = AtomicBool::new(false);
    let pool = Arc::new(Pool::default());
    let ended = Arc::new(AtomicUsize::new(0));
    let made_ids = Mutex::new(Vec::new());
    let profiles: Vec<Vec<TaskId>> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if !pool.run_one() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut made = 0;
            while !done.load(Ordering::Relaxed) {
                if made < 50_000 {
                    let numbered = async {
                        loop {
                            yield_now().await;
                        }
                    }
                    .tracked_as("numbered");
                    made_ids.lock().unwrap().push(numbered.id().unwrap());
                    pool.spawn(numbered);
                    made += 1;
                }
                let ended = ended.clone();
                pool.spawn(
                    async move {
                        yield_now().await;
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    .tracked_as("short"),
                );
                if made % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut profiles: Vec<Vec<TaskId>> = Vec::new();
        let enough = |profiles: &[Vec<TaskId>]| {
            profiles.len() > 2
                && profiles.iter().any(|profile| !profile.is_empty())
                && ended.load(Ordering::Relaxed) > 0
        };
        for_seconds(seconds, || {
            let tasks = task::tasks();
            for pair in tasks.windows(2) {
                assert!(pair[0].id() < pair[1].id(), "twice");
            }
            let numbered = tasks.iter().filter(|task| task.name() == Some("numbered"));
            profiles.push(numbered.map(TaskRecord::id).collect());
            enough(&profiles)
        });
        done.store(true, Ordering::Relaxed);
        profiles
    });
    let made = made_ids.into_inner().unwrap();
    assert!(profiles.len() > 2 && profiles.iter().any(|profile| !profile.is_empty()));
    for profile in &profiles {
        assert!(
            profile == &made[..profile.len()],
            "the name is not a prefix"
        );
    }
    assert!(ended.load(Ordering::Relaxed) > 0);
    // The tasks own the pool, and the pool owns the tasks.
    pool.ready.lock().unwrap().clear();
}

/// Two tasks that wake each other in turn, over and over.
struct Court {
    /// The index of the next task, and the wakers of both.
    state: Mutex<(usize, [Option<Waker>; 2])>,
}

impl Court {
    async fn turn(&self, player: usize) {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            if state.0 == player {
                return Poll::Ready(());
            }
            let place = &mut state.1[player];
            match place {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => *place = Some(context.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    fn throw(&self, player: usize) {
        let waker = {
            let mut state = self.state.lock().unwrap();
            state.0 = 1 - player;
            state.1[1 - player].take()
        };
        // Wakes outside of the lock: by then, the other task may have seen its turn.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Wakes, polls, registrations and drops on several threads. Every reading in between is
/// consistent, and no task that is woken is ever reported as forgotten.
#[test]
fn a_served_task_is_never_forgotten() {
    let seconds = std::env::var("PLIMSOLL_SOAK_SECONDS").map_or(1, |seconds| {
        seconds.parse().expect("PLIMSOLL_SOAK_SECONDS is a number")
    });
    let done = AtomicBool::new(false);
    let pool = Arc::new(Pool::default());
    for number in 0..200 {
        let court = Arc::new(Court {
            state: Mutex::new((0, [None, None])),
        });
        for player in 0..2 {
            let court = court.clone();
            pool.spawn(
                async move {
                    loop {
                        court.turn(player).await;
                        if number % 3 == 0 {
                            yield_now().await;
                        }
                        court.throw(player);
                    }
                }
                .tracked_as("player"),
            );
        }
    }
    let records = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if !pool.run_one() {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut records = 0;
        for_seconds(seconds, || {
            let tasks = task::tasks();
            let players = tasks.iter().filter(|task| task.name() == Some("player"));
            for player in players {
                assert!(!player.is_forgotten(), "{player:?}");
                records += 1;
            }
            records > 1_000
        });
        done.store(true, Ordering::Relaxed);
        records
    });
    assert!(records > 1_000, "{records}");
    println!("{records} records");
    pool.ready.lock().unwrap().clear();
}

/// A thread that borrows the waker during a poll may clone it.
#[test]
fn a_waker_can_be_cloned_and_woken_by_another_thread_while_the_task_is_polled() {
    struct Lends(Kept);
    impl Future for Lends {
        type Output = ();
        fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            let waker = context.waker();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        waker.wake_by_ref();
                        let cloned = waker.clone();
                        cloned.wake_by_ref();
                        self.0.lock().unwrap().push(cloned);
                    });
                }
                self.0.lock().unwrap().push(waker.clone());
            });
            Poll::Pending
        }
    }
    for _ in 0..200 {
        let hand = Hand::new();
        let kept = Kept::default();
        let mut tracked = Box::pin(Lends(kept.clone()).tracked());
        assert!(hand.poll(tracked.as_mut()).is_pending());
        assert_eq!(hand.wakes(), 4);
        let kept = std::mem::take(&mut *kept.lock().unwrap());
        for waker in &kept {
            waker.wake_by_ref();
        }
        assert_eq!(hand.wakes(), 7);
        drop(tracked);
        for waker in kept {
            waker.wake();
        }
        assert_eq!((hand.wakes(), hand.clones()), (10, 0));
    }
}
