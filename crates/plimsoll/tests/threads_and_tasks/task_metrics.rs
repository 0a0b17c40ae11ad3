//! Metrics of tasks: their states, how long they wait for polls, and how long polls take. Each test
//! runs in a separate process, because the metrics are those of a process.

use plimsoll_testkit::child;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use plimsoll::Histogram;
use plimsoll::task::{self, TaskMetrics, TrackExt, metrics};

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&executor()))
}

/// Returns the waker of an executor that polls without being woken.
fn executor() -> Waker {
    struct Deaf;
    impl std::task::Wake for Deaf {
        fn wake(self: Arc<Self>) {}
    }
    Arc::new(Deaf).into()
}

/// Returns a future that calls `call` in each poll and is never ready.
fn each_poll(mut call: impl FnMut(&Waker)) -> impl Future<Output = ()> {
    poll_fn(move |context| {
        call(context.waker());
        Poll::Pending
    })
}

type Kept = Arc<Mutex<Option<Waker>>>;

/// Returns a future that keeps a clone of the waker of its last poll.
fn keeps() -> (Kept, impl Future<Output = ()>) {
    let kept = Kept::default();
    let keep = kept.clone();
    let future = each_poll(move |waker| *keep.lock().unwrap() = Some(waker.clone()));
    (kept, future)
}

fn wake(kept: &Kept) {
    kept.lock().unwrap().take().expect("it waits").wake();
}

/// Returns the bucket of the only time in the histogram.
#[track_caller]
fn only(histogram: &Histogram) -> (f64, f64) {
    assert_eq!(histogram.total(), 1, "{histogram:?}");
    let at = histogram.counts.iter().position(|&count| count == 1);
    let at = at.expect("one exists");
    (histogram.buckets[at], histogram.buckets[at + 1])
}

/// Returns how many times are at least `seconds`.
fn at_least(histogram: &Histogram, seconds: f64) -> u64 {
    let above = histogram.buckets.partition_point(|&end| end <= seconds) - 1;
    histogram.counts[above..].iter().sum()
}

/// Counts of new, runnable, running, waiting and dropping tasks.
fn states(metrics: &TaskMetrics) -> [u64; 5] {
    assert!(metrics.exact);
    [
        metrics.new,
        metrics.runnable,
        metrics.running,
        metrics.waiting,
        metrics.dropping,
    ]
}

#[test]
fn a_task_is_counted_in_its_state() {
    child::run("a_task_is_counted_in_its_state", "", || {
        struct Asks<F>(F, Arc<Mutex<Vec<[u64; 5]>>>);
        impl<F> Drop for Asks<F> {
            fn drop(&mut self) {
                self.1.lock().unwrap().push(states(&metrics()));
            }
        }
        assert_eq!((metrics().created, metrics().alive), (0, 0));
        let (kept, future) = keeps();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let asks = Asks(Box::pin(future), seen.clone());
        let mut task = Box::pin(
            async move {
                let mut asks = asks;
                poll_fn(|context| {
                    asks.1.lock().unwrap().push(states(&metrics()));
                    asks.0.as_mut().poll(context)
                })
                .await;
            }
            .tracked(),
        );
        let look = || seen.lock().unwrap().push(states(&metrics()));
        look();
        assert!(poll(task.as_mut()).is_pending());
        look();
        wake(&kept);
        look();
        drop(task);
        look();
        let seen = seen.lock().unwrap();
        let expected = [
            [1, 0, 0, 0, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 0, 1, 0],
            [0, 1, 0, 0, 0],
            [0, 0, 0, 0, 1],
            [0, 0, 0, 0, 0],
        ];
        assert_eq!(*seen, expected);
        // This task has no waker, and is not done.
        let mut lonely = Box::pin(std::future::pending::<()>().tracked());
        assert!(poll(lonely.as_mut()).is_pending());
        assert_eq!(states(&metrics()), [0, 0, 0, 1, 0]);
        let done = metrics();
        assert_eq!((done.created, done.alive), (2, 1));
        assert_eq!(
            (done.poll_duration.total(), done.wake_to_poll.total()),
            (0, 0)
        );
    });
}

/// Each thread has a task from its start on, and creates the next one before it drops the previous
/// one. At any instant, the number of tasks is between one and two times the number of threads.
#[test]
fn counts_are_of_one_instant_and_nothing_falls() {
    child::run(
        "counts_are_of_one_instant_and_nothing_falls",
        "task_times=on",
        || {
            const THREADS: u64 = 4;
            let _plimsoll = plimsoll::start();
            let stop = AtomicBool::new(false);
            let (ready, polls) = (AtomicU64::new(0), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let make = || {
                            let (kept, future) = keeps();
                            (kept, Box::pin(future.tracked()))
                        };
                        let mut current = make();
                        ready.fetch_add(1, Ordering::SeqCst);
                        while !stop.load(Ordering::SeqCst) {
                            for _ in 0..3 {
                                assert!(poll(current.1.as_mut()).is_pending());
                                polls.fetch_add(1, Ordering::SeqCst);
                                wake(&current.0);
                            }
                            current = make();
                        }
                    });
                }
                while ready.load(Ordering::SeqCst) < THREADS {
                    std::thread::yield_now();
                }
                let mut before = metrics();
                for _ in 0..2_000 {
                    let now = metrics();
                    assert!((THREADS..=2 * THREADS).contains(&now.alive), "{now:?}");
                    assert_eq!(states(&now).iter().sum::<u64>(), now.alive);
                    assert!(now.created >= before.created.max(now.alive));
                    for (now, before) in [
                        (&now.wake_to_poll, &before.wake_to_poll),
                        (&now.poll_duration, &before.poll_duration),
                    ] {
                        let mut pairs = now.counts.iter().zip(&before.counts);
                        assert!(pairs.all(|(now, before)| now >= before));
                    }
                    before = now;
                }
                stop.store(true, Ordering::SeqCst);
            });
            let end = metrics();
            assert_eq!(end.alive, 0);
            let polls = polls.load(Ordering::SeqCst);
            assert_eq!(end.poll_duration.total(), polls);
            // All polls except the first of each three.
            assert_eq!(end.wake_to_poll.total(), polls / 3 * 2);
        },
    );
}

#[test]
fn a_woken_task_waits_until_it_is_polled() {
    child::run("a_woken_task_waits_until_it_is_polled", "", || {
        const TIME: Duration = Duration::from_millis(30);
        assert!(!task::set_times(true));
        let (kept, future) = keeps();
        let mut task = pin!(future.tracked());
        // The task was woken neither before its first poll nor before this one.
        assert!(poll(task.as_mut()).is_pending());
        assert!(poll(task.as_mut()).is_pending());
        assert_eq!(metrics().wake_to_poll.total(), 0);
        let woken = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let waker = kept.lock().unwrap().take().unwrap();
                waker.wake_by_ref();
                std::thread::sleep(TIME);
                // The first wake counts.
                waker.wake();
            });
        });
        assert!(poll(task.as_mut()).is_pending());
        let most = woken.elapsed().as_secs_f64();
        let (from, to) = only(&metrics().wake_to_poll);
        assert!(
            to > TIME.as_secs_f64() && from <= most,
            "{from}..{to} in {most}"
        );
    });
}

/// The task could not be polled again before the end of the poll.
#[test]
fn a_task_woken_in_a_poll_waits_from_its_end() {
    child::run("a_task_woken_in_a_poll_waits_from_its_end", "", || {
        task::set_times(true);
        let moments = Mutex::new(Vec::new());
        let mut task = pin!(
            each_poll(|waker| {
                moments.lock().unwrap().push(Instant::now());
                waker.wake_by_ref();
                std::thread::sleep(Duration::from_millis(50));
                moments.lock().unwrap().push(Instant::now());
            })
            .tracked()
        );
        assert!(poll(task.as_mut()).is_pending());
        assert!(poll(task.as_mut()).is_pending());
        let moments = moments.lock().unwrap();
        let most = (moments[2] - moments[1]).as_secs_f64();
        let (from, _) = only(&metrics().wake_to_poll);
        assert!(from <= most, "{from} of {most}");
    });
}

#[test]
fn every_poll_has_its_length_also_one_in_another_and_one_that_panics() {
    child::run(
        "every_poll_has_its_length_also_one_in_another_and_one_that_panics",
        "",
        || {
            const TIME: Duration = Duration::from_millis(20);
            task::set_times(true);
            let inner = each_poll(|_| std::thread::sleep(TIME)).tracked();
            let mut outer = pin!(inner.tracked());
            let begun = Instant::now();
            assert!(poll(outer.as_mut()).is_pending());
            let most = begun.elapsed().as_secs_f64();
            let lengths = metrics().poll_duration;
            assert_eq!(lengths.total(), 2);
            // From the start of the bucket that contains the time.
            assert_eq!(at_least(&lengths, TIME.as_secs_f64()), 2);
            assert_eq!(at_least(&lengths, most * 1.26), 0);

            let mut panics =
                Box::pin(each_poll(|_| panic!("a panic requested by the test")).tracked());
            let polled = std::panic::AssertUnwindSafe(|| poll(panics.as_mut()));
            assert!(std::panic::catch_unwind(polled).is_err());
            assert_eq!(metrics().poll_duration.total(), 3);
        },
    );
}

#[test]
fn times_are_recorded_only_while_enabled() {
    child::run(
        "times_are_recorded_only_while_enabled",
        "task_times=off",
        || {
            let _plimsoll = plimsoll::start();
            let totals = || {
                let metrics = metrics();
                (metrics.wake_to_poll.total(), metrics.poll_duration.total())
            };
            let wanted = AtomicBool::new(false);
            let mut task = pin!(
                each_poll(|waker| {
                    waker.wake_by_ref();
                    task::set_times(wanted.load(Ordering::SeqCst));
                })
                .tracked()
            );
            assert!(poll(task.as_mut()).is_pending());
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (0, 0));
            // The poll and the wake before the switch are not counted; the wake in the next poll
            // is.
            wanted.store(true, Ordering::SeqCst);
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (0, 0));
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (0, 1));
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (1, 2));
            // A poll that began while times were on is counted at its end.
            wanted.store(false, Ordering::SeqCst);
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (2, 3));
            assert!(poll(task.as_mut()).is_pending());
            assert_eq!(totals(), (2, 3));
            assert!(!task::set_times(true));
            assert!(task::set_times(true));
        },
    );
}

/// The memory for a snapshot is refused: the counts are correct, and the metrics report that they
/// are not of one instant.
#[test]
fn tasks_are_counted_one_by_one_without_memory() {
    child::run("tasks_are_counted_one_by_one_without_memory", "", || {
        let mut tasks: Vec<_> = (0..10)
            .map(|_| Box::pin(std::future::pending::<()>().tracked()))
            .collect();
        for task in &mut tasks[..4] {
            assert!(poll(task.as_mut()).is_pending());
        }
        assert_eq!(states(&metrics()), [6, 0, 0, 4, 0]);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let limit = |bytes| libc::rlimit {
            rlim_cur: bytes,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: `limit` is initialized, and it applies to this process only.
        let set = |limit| unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
        assert_eq!(set(limit((pages << 12) + (1 << 20))), 0);
        let counted = metrics();
        assert_eq!(set(limit(libc::RLIM_INFINITY)), 0);
        assert!(!counted.exact);
        assert_eq!((counted.alive, counted.new, counted.waiting), (10, 6, 4));
        assert!(metrics().exact);
    });
}
