//! The profile `longpoll`: polls that block an executor's thread, with the stack of the blocking
//! call. Each test runs in a separate process.

use plimsoll_checks::profile::{read_profile, read_with_idle};
use plimsoll_testkit::child;
use std::future::{Future, poll_fn};
use std::hint;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll::label;
use plimsoll::profile::{self, Detail, Format};
use plimsoll::task::TrackExt;

/// Limit after which the test considers itself hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// Long enough that a poll does not exceed it only because it lacks a processor.
const THRESHOLD: Duration = Duration::from_millis(100);

/// One sample.
#[derive(Clone, Debug)]
struct Long {
    names: Vec<String>,
    polls: i64,
    delay: Duration,
    task: Option<String>,
    tenant: Option<String>,
}

impl Long {
    fn is_in(&self, function: &str) -> bool {
        self.names.iter().any(|name| name.contains(function))
    }
}

fn long_polls() -> Vec<Long> {
    // The functions that the tests search for are not inlined.
    let profile = read_with_idle("longpoll", Detail::Names);
    assert_eq!(
        profile.sample_types(),
        [("polls", "count"), ("delay", "nanoseconds")]
    );
    let label = |sample, key| profile.label(sample, key).map(str::to_owned);
    let samples = profile.sample.iter();
    samples
        .map(|sample| Long {
            names: profile
                .names(sample)
                .into_iter()
                .map(str::to_owned)
                .collect(),
            polls: sample.value[0],
            delay: Duration::from_nanos(sample.value[1].try_into().expect("a length of time")),
            task: label(sample, "task"),
            tenant: label(sample, "tenant"),
        })
        .collect()
}

const UNSEEN: &str = "[not seen while it ran]";

/// Reads the profile until it has a sample with this function.
#[track_caller]
fn wait_for(function: &str) -> Long {
    wait_until(function, |_| true)
}

#[track_caller]
fn wait_until(function: &str, enough: impl Fn(&Long) -> bool) -> Long {
    let begun = Instant::now();
    loop {
        let all = long_polls();
        let found = all.iter().find(|long| long.is_in(function) && enough(long));
        if let Some(found) = found {
            return found.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{function}: {all:#?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[inline(never)]
fn blocks_the_executor(until: &Receiver<()>) {
    until.recv().expect("the other end is there");
    hint::black_box(());
}

#[inline(never)]
fn spins_in_the_executor(until: &Receiver<()>) {
    while until.try_recv().is_err() {
        hint::spin_loop();
    }
    hint::black_box(());
}

/// The type of a task as executors get it.
type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor that runs one task to its end.
type Executor = (&'static str, fn(Task));

const EXECUTORS: [Executor; 4] = [
    ("by hand", |task| {
        struct Unparks(std::thread::Thread);
        impl Wake for Unparks {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
        let mut task = task;
        while task
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            std::thread::park();
        }
    }),
    ("tokio, one thread", |task| {
        let runtime = tokio::runtime::Builder::new_current_thread();
        on_tokio(runtime, task);
    }),
    ("tokio, two threads", |task| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2);
        on_tokio(runtime, task);
    }),
    ("async-executor", |task| {
        let executor = async_executor::Executor::new();
        futures::executor::block_on(executor.run(executor.spawn(task)));
    }),
];

fn on_tokio(mut builder: tokio::runtime::Builder, task: Task) {
    let runtime = builder.build().expect("a runtime");
    runtime
        .block_on(async { tokio::spawn(task).await })
        .expect("the task ends");
}

/// Runs a poll that calls `function` until the profile has shown it there.
#[track_caller]
fn is_seen(executor: usize, function: fn(&Receiver<()>), name: &str) {
    let (what, run) = EXECUTORS[executor];
    let task_name = format!("{name} on {what}");
    let of_this = |long: &Long| long.task.as_deref() == Some(&task_name);
    let (release, until) = mpsc::channel();
    let task = async move {
        tokio::task::yield_now().await;
        let _route = label::with([("route", "/slow")]);
        function(&until);
    }
    .tracked_as(&task_name)
    .label("tenant", "acme");
    let begun = Instant::now();
    let running = std::thread::spawn(move || run(Box::pin(task)));
    let first = wait_until(name, of_this);
    assert_eq!(first.polls, 1, "{what}");
    assert!(first.delay >= THRESHOLD, "{what}: {first:?}");
    assert_eq!(first.tenant.as_deref(), Some("acme"), "{what}");
    // While the poll continues, its time grows.
    let later = wait_until(name, |long| of_this(long) && long.delay > first.delay);
    assert_eq!(later.polls, 1, "{what}");
    release.send(()).expect("it waits for that");
    running.join().expect("it ends");
    let most = begun.elapsed();
    let all = long_polls();
    let all: Vec<_> = all.into_iter().filter(of_this).collect();
    let [end] = &all[..] else {
        panic!("{what}: not one sample: {all:#?}");
    };
    assert!(end.is_in(name) && end.polls == 1, "{what}: {end:?}");
    assert!((later.delay..=most).contains(&end.delay), "{what}: {end:?}");
}

#[test]
fn a_poll_that_blocks_is_in_it_with_its_function() {
    child::run(
        "a_poll_that_blocks_is_in_it_with_its_function",
        "long_poll=100ms",
        || {
            let _plimsoll = plimsoll::start();
            assert_eq!(profile::long_poll(), Some(THRESHOLD));
            for executor in 0..EXECUTORS.len() {
                is_seen(executor, blocks_the_executor, "blocks_the_executor");
            }
        },
    );
}

#[test]
fn a_poll_that_spins_is_in_it_with_its_function() {
    child::run(
        "a_poll_that_spins_is_in_it_with_its_function",
        "long_poll=100ms",
        || {
            let _plimsoll = plimsoll::start();
            for executor in 0..EXECUTORS.len() {
                is_seen(executor, spins_in_the_executor, "spins_in_the_executor");
            }
            let mut text = Vec::new();
            let longpoll = profile::lookup("longpoll").unwrap();
            longpoll.write_to(&mut text, Format::Text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with("--- long polls:\n"), "{text}");
            assert!(text.contains("spins_in_the_executor"), "{text}");
            assert!(text.contains(r#""tenant":"acme""#), "{text}");
            assert_eq!(longpoll.count(), EXECUTORS.len());
        },
    );
}

/// Polls a future that is never ready `times` times.
fn poll_times(future: impl Future, times: usize) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..times {
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
}

fn pending() -> impl Future<Output = ()> {
    poll_fn(|_| Poll::Pending)
}

#[test]
fn short_polls_are_not_in_it() {
    child::run("short_polls_are_not_in_it", "", || {
        // No threshold is set, so no poll is recorded.
        poll_times(pending().tracked(), 1_000);
        assert_eq!(profile::set_long_poll(Some(2 * PATIENCE)), None);
        poll_times(pending().tracked(), 10_000);
        assert_eq!(profile::set_long_poll(None), Some(2 * PATIENCE));
        assert!(long_polls().is_empty());
    });
}

/// Every poll is long, so the watcher meets polls that begin and end all the time.
#[test]
fn all_are_counted_once_whether_they_are_seen_or_not() {
    child::run(
        "all_are_counted_once_whether_they_are_seen_or_not",
        "",
        || {
            const THREADS: usize = 4;
            const POLLS: usize = 20_000;
            assert_eq!(profile::set_long_poll(Some(Duration::ZERO)), None);
            let begun = Instant::now();
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        // A nested poll counts as part of the outer one.
                        let within = poll_fn(|_| {
                            for _ in 0..1_000 {
                                hint::spin_loop();
                            }
                            Poll::<()>::Pending
                        });
                        poll_times(
                            async { within.tracked_as("inner").await }.tracked_as("outer"),
                            POLLS,
                        );
                    });
                }
            });
            let most = begun.elapsed() * THREADS as u32;
            let all = long_polls();
            assert!(
                all.iter().all(|long| long.task.as_deref() == Some("outer")),
                "{all:#?}"
            );
            let polls: i64 = all.iter().map(|long| long.polls).sum();
            assert_eq!(polls, (THREADS * POLLS) as i64);
            let delay: Duration = all.iter().map(|long| long.delay).sum();
            assert!(
                delay > Duration::ZERO && delay <= most,
                "{delay:?} in {most:?}"
            );
            assert!(all.iter().any(|long| long.is_in(UNSEEN)));
            let comments = read_profile("longpoll");
            let [comment] = comments.comments()[..] else {
                panic!("not one comment")
            };
            assert!(
                comment.contains(&format!("{polls} long polls, {} ns", delay.as_nanos())),
                "{comment}"
            );
        },
    );
}

#[test]
fn switching_while_tasks_run_loses_none_that_was_seen() {
    child::run(
        "switching_while_tasks_run_loses_none_that_was_seen",
        "",
        || {
            const POLLS: usize = 30_000;
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        profile::set_long_poll(Some(Duration::ZERO));
                        std::thread::yield_now();
                        profile::set_long_poll(None);
                    }
                });
                let pollers: Vec<_> = (0..2)
                    .map(|_| scope.spawn(|| poll_times(pending().tracked(), POLLS)))
                    .collect();
                for poller in pollers {
                    poller.join().unwrap();
                }
                done.store(true, Ordering::SeqCst);
            });
            let count = || long_polls().iter().map(|long| long.polls).sum::<i64>();
            let before = count();
            assert!(before <= 2 * POLLS as i64);
            profile::set_long_poll(Some(Duration::ZERO));
            poll_times(pending().tracked(), 10);
            profile::set_long_poll(None);
            poll_times(pending().tracked(), 10);
            assert_eq!(count(), before + 10);

            // A poll that was seen stays in the profile until its end.
            profile::set_long_poll(Some(THRESHOLD));
            let (release, until) = mpsc::channel();
            let begun = Instant::now();
            let running = std::thread::spawn(move || {
                poll_times(
                    poll_fn(move |_| {
                        blocks_the_executor(&until);
                        Poll::<()>::Pending
                    })
                    .tracked(),
                    1,
                );
            });
            let seen = wait_for("blocks_the_executor");
            profile::set_long_poll(None);
            std::thread::sleep(Duration::from_millis(30));
            let waited = begun.elapsed();
            release.send(()).unwrap();
            running.join().unwrap();
            let end = wait_for("blocks_the_executor");
            assert_eq!((seen.polls, end.polls), (1, 1));
            assert!(
                end.delay >= seen.delay + Duration::from_millis(20),
                "{seen:?} {end:?} {waited:?}"
            );
        },
    );
}

/// A running thread that blocks all signals cannot be read.
#[test]
fn a_poll_that_cannot_be_read_is_counted_without_a_stack() {
    child::run(
        "a_poll_that_cannot_be_read_is_counted_without_a_stack",
        "long_poll=100ms",
        || {
            let _plimsoll = plimsoll::start();
            let (release, until) = mpsc::channel();
            let running = std::thread::spawn(move || {
                // SAFETY: the set is initialized; blocks all signals of this thread.
                unsafe {
                    let mut all = std::mem::zeroed();
                    libc::sigfillset(&raw mut all);
                    libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
                }
                let spins = poll_fn(move |_| {
                    spins_in_the_executor(&until);
                    Poll::<()>::Pending
                });
                poll_times(spins.tracked_as("deaf"), 1);
            });
            let seen = wait_for("[no stack]");
            assert_eq!((seen.polls, seen.task.as_deref()), (1, Some("deaf")));
            release.send(()).unwrap();
            running.join().unwrap();
            let all = long_polls();
            assert_eq!(all.len(), 1, "{all:#?}");
        },
    );
}

/// Forks. The parent waits until the child has run `child`, and checks that it succeeded.
fn in_a_fork(child: impl FnOnce()) {
    // SAFETY: the child exits by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        child => {
            let status = plimsoll_testkit::child::wait(child);
            assert_eq!(status, 0, "the child was not well");
        }
    }
}

#[test]
fn a_forks_child_counts_and_watches_on_request() {
    child::run(
        "a_forks_child_counts_and_watches_on_request",
        "long_poll=100ms",
        || {
            let _plimsoll = plimsoll::start();
            // Forks during a poll that was seen, while a poll of another thread lasts.
            let (release, until) = mpsc::channel();
            let other = std::thread::spawn(move || {
                let blocks = poll_fn(move |_| {
                    blocks_the_executor(&until);
                    Poll::<()>::Pending
                });
                poll_times(blocks.tracked_as("other"), 1);
            });
            wait_for("blocks_the_executor");
            let forks = poll_fn(|_| {
                forks_in_a_poll();
                Poll::<()>::Pending
            });
            poll_times(forks.tracked_as("forks"), 1);
            release.send(()).unwrap();
            other.join().unwrap();
            let all = long_polls();
            let polls: i64 = all.iter().map(|long| long.polls).sum();
            assert_eq!(polls, 2, "{all:#?}");
        },
    );
}

#[inline(never)]
fn forks_in_a_poll() {
    let seen = wait_for("forks_in_a_poll");
    assert_eq!(seen.polls, 1);
    in_a_fork(|| {
        // No watcher runs, but long polls are counted.
        let naps = || {
            poll_fn(|_| {
                std::thread::sleep(2 * THRESHOLD);
                Poll::<()>::Pending
            })
        };
        std::thread::spawn(move || poll_times(naps().tracked_as("child's"), 1))
            .join()
            .unwrap();
        let unseen = wait_for(UNSEEN);
        assert_eq!((unseen.polls, unseen.task.as_deref()), (1, Some("child's")));
        assert!(unseen.delay >= 2 * THRESHOLD, "{unseen:?}");
        assert_eq!(profile::set_long_poll(Some(THRESHOLD)), Some(THRESHOLD));
        let (release, until) = mpsc::channel();
        let running = std::thread::spawn(move || {
            let waits = poll_fn(move |_| {
                waits_in_the_child(&until);
                Poll::<()>::Pending
            });
            poll_times(waits.tracked(), 1);
        });
        let seen = wait_for("waits_in_the_child");
        assert_eq!(seen.polls, 1);
        release.send(()).unwrap();
        running.join().unwrap();
        // The poll of the forking thread continues, in the parent and in the child.
        assert!(wait_for("forks_in_a_poll").polls == 1);
    });
    hint::black_box(());
}

#[inline(never)]
fn waits_in_the_child(until: &Receiver<()>) {
    until.recv().expect("the other end is there");
    hint::black_box(());
}
