//! The contract of wakers under each executor. All clones of a tracked waker share one clone of the
//! executor's waker.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use plimsoll::task::{self, TaskId, TaskRecord, TaskState, TrackExt};

use super::counted::{Call, Counted, Counts};
use super::kinds::{self, AsyncTask, Cancel, Kind};
use super::record;

/// Settings for a future's next polls, and a record of what it has done.
#[derive(Default)]
struct Script {
    /// Clones of its waker that the future makes at each poll.
    clones: AtomicUsize,
    /// Whether the future wakes itself, by reference, at the next poll.
    wakes_itself: AtomicBool,
    panics: AtomicBool,
    ends: AtomicBool,
    kept: Mutex<Vec<Waker>>,
    dropped: AtomicBool,
}

struct Follows(Arc<Script>);

impl Future for Follows {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.wakes_itself.swap(false, SeqCst) {
            context.waker().wake_by_ref();
        }
        for _ in 0..self.0.clones.load(SeqCst) {
            let waker = context.waker().clone();
            self.0.kept.lock().unwrap().push(waker);
        }
        if self.0.panics.load(SeqCst) {
            panic!("a panic requested by the test");
        }
        if self.0.ends.load(SeqCst) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.dropped.store(true, SeqCst);
    }
}

/// A tracked task of an executor that follows a script. Calls of the executor's waker are counted.
struct Scene<'a> {
    kind: &'a dyn Kind,
    script: Arc<Script>,
    counts: Arc<Counts>,
    id: TaskId,
    cancel: Option<Cancel>,
}

impl<'a> Scene<'a> {
    /// Spawns a task that keeps `clones` clones of its waker at each poll, and waits for its first
    /// poll.
    #[track_caller]
    fn new(kind: &'a dyn Kind, clones: usize) -> Self {
        let script = Arc::new(Script::default());
        script.clones.store(clones, SeqCst);
        let counts = Arc::new(Counts::default());
        let tracked = Follows(script.clone()).tracked();
        let id = tracked.id().unwrap();
        let counted = Counted::new(tracked, counts.clone());
        let cancel = Some(kind.spawn(Box::pin(counted)));
        let scene = Self {
            kind,
            script,
            counts,
            id,
            cancel,
        };
        scene.is_polled(1);
        scene
    }

    fn record(&self) -> TaskRecord {
        record(self.id).expect("it is there")
    }

    /// Runs the executor until the task has been polled `times` times.
    #[track_caller]
    fn is_polled(&self, times: u32) {
        self.kind.run_until(&format!("{times} polls"), &|| {
            let task = self.record();
            assert!(task.polls() <= times, "{task:?}");
            task.polls() == times && task.state() != TaskState::Running
        });
    }

    /// Runs the executor until the task has ended, for whatever reason.
    #[track_caller]
    fn is_gone(&self) {
        self.kind.run_until("it is gone", &|| {
            record(self.id).is_none() && self.script.dropped.load(SeqCst)
        });
    }

    fn take(&self) -> Waker {
        self.script.kept.lock().unwrap().pop().expect("one is kept")
    }

    fn drop_kept(&self) {
        let kept = std::mem::take(&mut *self.script.kept.lock().unwrap());
        drop(kept);
    }

    /// Checks how many clones of the executor's waker were ever made, how many exist, and how often
    /// the executor was woken. Where the poll after a wake by value can finish before the wake
    /// does, a registration of that poll reuses the existing clone.
    #[track_caller]
    fn counts(&self, clones: usize, live: isize, wakes: usize) {
        let made = self.counts.clones();
        if self.kind.is_threaded() {
            assert!((1..=clones).contains(&made), "{}: {made}", self.kind.name());
        } else {
            assert_eq!(made, clones, "{}", self.kind.name());
        }
        let counted = (self.counts.live(), self.counts.wakes());
        assert_eq!(counted, (live, wakes), "{}", self.kind.name());
    }

    /// Checks that no waker of the task exists. On a threaded executor, the last poll may have
    /// begun before its own wake ended. That wake may then count as another one, so nothing is
    /// proved.
    #[track_caller]
    fn is_forgotten(&self) {
        let task = self.record();
        if !self.kind.is_threaded() {
            assert!(task.is_forgotten(), "{}: {task:?}", self.kind.name());
        }
    }

    fn cancel(&mut self) {
        (self.cancel.take().expect("once"))();
        self.is_gone();
    }
}

/// Runs a test on each executor.
fn on_each(test: impl Fn(&dyn Kind)) {
    for kind in kinds::all() {
        test(&*kind);
    }
}

#[test]
fn woken_by_value() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 3);
        scene.counts(1, 1, 0);
        scene.take().wake();
        scene.is_polled(2);
        // Five tracked clones exist; they share one clone of the executor's waker.
        scene.counts(1, 1, 1);
        for wakes in 2..4 {
            scene.take().wake();
            scene.is_polled(wakes + 1);
            scene.counts(1, 1, wakes as usize);
        }
        scene.drop_kept();
        scene.counts(1, 0, 3);
        scene.is_forgotten();
        scene.cancel();
        scene.counts(1, 0, 3);
    });
}

/// The wake through the last registration consumes the executor's clone.
#[test]
fn woken_by_value_through_the_last_one() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 1);
        for times in 1..5 {
            scene.counts(times, 1, times - 1);
            scene.take().wake();
            scene.is_polled(times as u32 + 1);
        }
        scene.cancel();
        scene.counts(5, 1, 4);
        scene.drop_kept();
        scene.counts(5, 0, 4);
    });
}

#[test]
fn woken_by_reference_from_another_thread() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 1);
        for times in 1..5 {
            let waker = scene.take();
            let waker = std::thread::spawn(move || {
                waker.wake_by_ref();
                waker
            });
            let waker = waker.join().unwrap();
            scene.is_polled(times as u32 + 1);
            scene.counts(1, 1, times);
            drop(waker);
        }
        scene.drop_kept();
        scene.counts(1, 0, 4);
        scene.cancel();
    });
}

#[test]
fn cloned_by_another_thread_and_outlives_the_first() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 1);
        let waker = scene.take();
        let (first, second) = std::thread::spawn(move || (waker.clone(), waker))
            .join()
            .unwrap();
        scene.counts(1, 1, 0);
        drop(second);
        scene.counts(1, 1, 0);
        let another = first.clone();
        first.wake();
        scene.is_polled(2);
        drop(another);
        scene.counts(1, 1, 1);
        scene.drop_kept();
        scene.counts(1, 0, 1);
        scene.cancel();
    });
}

#[test]
fn woken_within_its_poll() {
    on_each(|kind| {
        // The task wakes itself by reference, with nothing registered.
        let mut scene = Scene::new(kind, 1);
        scene.script.clones.store(0, SeqCst);
        scene.script.wakes_itself.store(true, SeqCst);
        scene.take().wake();
        // One poll for the wake above, and one for the task's own wake.
        scene.is_polled(3);
        scene.counts(1, 0, 2);
        scene.is_forgotten();
        scene.cancel();
    });
}

#[test]
fn used_after_the_task_is_complete() {
    on_each(|kind| {
        let scene = Scene::new(kind, 2);
        scene.script.clones.store(0, SeqCst);
        scene.script.ends.store(true, SeqCst);
        scene.take().wake();
        scene.is_gone();
        scene.counts(1, 1, 1);
        let waker = scene.take();
        waker.wake_by_ref();
        scene.counts(1, 1, 2);
        std::thread::spawn(move || {
            let another = waker.clone();
            drop(waker);
            another.wake();
        })
        .join()
        .unwrap();
        scene.counts(1, 0, 3);
        // The executor may visit the task, and finds nothing to do.
        for _ in 0..10 {
            kind.tick();
        }
        scene.counts(1, 0, 3);
    });
}

#[test]
fn used_after_a_panic() {
    on_each(|kind| {
        let scene = Scene::new(kind, 1);
        scene.script.panics.store(true, SeqCst);
        scene.take().wake();
        scene.is_gone();
        assert_eq!(scene.counts.panics(), 1);
        // The live clone is the one of the poll that panicked.
        scene.counts(2, 1, 1);
        scene.take().wake();
        scene.counts(2, 0, 2);
    });
}

#[test]
fn used_after_the_task_was_cancelled() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 2);
        scene.cancel();
        scene.counts(1, 1, 0);
        scene.take().wake_by_ref();
        scene.counts(1, 1, 1);
        let waker = scene.take();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        scene.counts(1, 0, 2);
        for _ in 0..10 {
            kind.tick();
        }
    });
}

/// A task that is dropped before its first poll makes no waker.
#[test]
fn a_task_that_is_never_polled_has_no_waker() {
    let counts = Arc::new(Counts::default());
    let script = Arc::new(Script::default());
    let tracked = Follows(script.clone()).tracked();
    let id = tracked.id().unwrap();
    let executor = AsyncTask::new();
    drop(executor.task(Box::pin(Counted::new(tracked, counts.clone()))));
    executor.tick();
    assert!(record(id).is_none() && script.dropped.load(SeqCst));
    assert_eq!((counts.clones(), counts.live(), counts.wakes()), (0, 0, 0));
}

/// An executor's waker may do anything. It may wake the task when it is cloned, and use other
/// wakers of the task from within its own functions.
#[test]
fn executors_whose_wakers_call_back() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 1);
        let ours = scene.take();
        let depth = AtomicUsize::new(0);
        let calls = Arc::new(Mutex::new(Vec::new()));
        scene.counts.set_hook(Some(Arc::new({
            let calls = calls.clone();
            let ours = ours.clone();
            move |call, executors: &Waker| {
                calls.lock().unwrap().push(call);
                // A spurious wake, which is allowed and which Plimsoll cannot see.
                if call == Call::Clone {
                    executors.wake_by_ref();
                }
                if depth.fetch_add(1, SeqCst) == 0 {
                    ours.wake_by_ref();
                    drop(ours.clone());
                    let another = ours.clone();
                    another.wake();
                }
                depth.fetch_sub(1, SeqCst);
            }
        })));
        let polls = scene.record().polls();
        ours.wake_by_ref();
        drop(ours);
        // One to three polls follow the three wakes; any of them may register again.
        kind.run_until("it was polled for them, and has one", &|| {
            let task = scene.record();
            task.polls() > polls && task.state() != TaskState::Running && scene.counts.live() == 1
        });
        assert!(calls.lock().unwrap().len() >= 3, "{}", kind.name());
        // The hook owns a tracked waker, that owns a clone of the executor's waker, and that owns
        // the hook.
        scene.cancel();
        scene.drop_kept();
        scene.counts.set_hook(None);
        kind.run_until("everything is released", &|| scene.counts.live() == 0);
    });
}

/// The same while a first registration is made and while the last one is dropped.
#[test]
fn executors_whose_wakers_wake_when_they_are_cloned_or_dropped() {
    on_each(|kind| {
        let mut scene = Scene::new(kind, 1);
        scene
            .counts
            .set_hook(Some(Arc::new(|call, executors: &Waker| {
                if matches!(call, Call::Clone | Call::Drop) {
                    executors.wake_by_ref();
                }
            })));
        // Each drop makes the executor poll for no reason that Plimsoll knows; that poll registers
        // again.
        for _ in 0..5 {
            let polls = scene.record().polls();
            scene.drop_kept();
            kind.run_until("it is polled", &|| {
                scene.record().polls() > polls && scene.record().state() == TaskState::Waiting
            });
        }
        // The executor may do so again at any time, so nothing is proved.
        scene.counts.set_hook(None);
        // Drops what remains in progress from the last round.
        scene.script.clones.store(0, SeqCst);
        kind.run_until("no waker of it exists", &|| {
            scene.drop_kept();
            scene.counts.live() == 0 && scene.record().state() == TaskState::NoWaker
        });
        assert!(!scene.record().is_forgotten(), "{}", kind.name());
        scene.cancel();
        assert_eq!(scene.counts.live(), 0);
    });
}

/// An executor that frees a task when nothing can wake it any more still does so.
#[test]
fn a_detached_task_goes_with_its_last_waker() {
    for is_tracked in [false, true] {
        let executor = AsyncTask::new();
        let script = Arc::new(Script::default());
        script.clones.store(2, SeqCst);
        let future = Follows(script.clone());
        let task = if is_tracked {
            executor.task(Box::pin(future.tracked()))
        } else {
            executor.task(Box::pin(future))
        };
        task.detach();
        executor.tick();
        let mut kept = std::mem::take(&mut *script.kept.lock().unwrap());
        assert_eq!(kept.len(), 2);
        kept.pop();
        executor.tick();
        assert!(!script.dropped.load(SeqCst), "tracked: {is_tracked}");
        kept.pop();
        // The executor schedules the task once more, to drop it.
        executor.tick();
        assert!(script.dropped.load(SeqCst), "tracked: {is_tracked}");
    }
}

/// Executors that poll every task in turn: a task of theirs is never proved forgotten.
#[test]
fn a_task_polled_in_turn_is_never_forgotten() {
    struct Nothing;
    impl std::task::Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let busy = Waker::from(Arc::new(Nothing));
    for waker in [&busy, Waker::noop()] {
        let mut tasks: Vec<_> = (0..10)
            .map(|_| Box::pin(std::future::pending::<()>().tracked()))
            .collect();
        let ids: Vec<_> = tasks.iter().map(|task| task.id().unwrap()).collect();
        for round in 0..5 {
            for task in &mut tasks {
                let mut context = Context::from_waker(waker);
                assert!(task.as_mut().poll(&mut context).is_pending());
            }
            // A task whose waker may be of use looks forgotten until it is polled without a wake.
            if round > 0 || waker.will_wake(Waker::noop()) {
                let records = task::tasks();
                let mine = records.iter().filter(|task| ids.contains(&task.id()));
                let mine: Vec<_> = mine.collect();
                assert_eq!(mine.len(), 10);
                assert!(mine.iter().all(|task| !task.is_forgotten()));
            }
        }
    }
}

/// Polls, wakes, clones and drops run concurrently: in the end, every clone is released.
#[test]
fn under_churn_every_clone_is_given_back_once() {
    /// A future that takes a few clones at each poll and ends after `left` polls.
    struct Churns {
        kept: Arc<Mutex<Vec<Waker>>>,
        left: usize,
    }
    impl Future for Churns {
        type Output = ();
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if self.left == 0 {
                return Poll::Ready(());
            }
            self.left -= 1;
            let mut kept = self.kept.lock().unwrap();
            for _ in 0..self.left % 3 + 1 {
                kept.push(context.waker().clone());
            }
            Poll::Pending
        }
    }
    for kind in kinds::threaded() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let counts: Vec<Arc<Counts>> = (0..30).map(|_| Arc::default()).collect();
        let tasks: Vec<_> = counts
            .iter()
            .map(|counts| {
                let churns = Churns {
                    kept: kept.clone(),
                    left: 300,
                };
                let tracked = churns.tracked_as("churns");
                let id = tracked.id().unwrap();
                let counted = Counted::new(tracked, counts.clone());
                (id, kind.spawn(Box::pin(counted)))
            })
            .collect();
        let are_done = || {
            let there = task::tasks();
            tasks
                .iter()
                .all(|(id, _)| there.iter().all(|task| task.id() != *id))
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2_usize {
                let (kept, done) = (&kept, &done);
                scope.spawn(move || {
                    let mut turn = thread;
                    while !done.load(SeqCst) {
                        let Some(waker) = kept.lock().unwrap().pop() else {
                            std::thread::yield_now();
                            continue;
                        };
                        turn += 1;
                        match turn % 4 {
                            0 => waker.wake(),
                            1 => waker.wake_by_ref(),
                            2 => {
                                let another = waker.clone();
                                waker.wake();
                                drop(another);
                            }
                            _ => {
                                let another = waker.clone();
                                drop(waker);
                                another.wake();
                            }
                        }
                    }
                });
            }
            kind.run_until("all are done", &are_done);
            done.store(true, SeqCst);
        });
        drop(tasks);
        kept.lock().unwrap().clear();
        for counts in &counts {
            // The executor may still be processing wakes that are not counted.
            kind.run_until("everything is released", &|| counts.live() == 0);
            assert_eq!(counts.panics(), 0);
            assert!(counts.clones() > 0 && counts.wakes() >= 299);
        }
    }
}
