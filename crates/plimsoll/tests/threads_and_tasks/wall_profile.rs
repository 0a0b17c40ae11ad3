//! The wall-clock profile: sums of elapsed time, states, and its pages.
//!
//! Threads are read at random, so a share has an error: tests give it five standard errors, an error
//! probability of 6e-7.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use plimsoll::http::serve;
use plimsoll::task::TrackExt;
use plimsoll_testkit::child;
use plimsoll_testkit::client::request;
use plimsoll_testkit::pprof::{Profile, Sample};

fn time_of<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> f64 {
    samples
        .into_iter()
        .map(|sample| sample.value[1] as f64)
        .sum()
}

fn with<'a>(
    profile: &'a Profile,
    key: &'a str,
    value: &'a str,
) -> impl Iterator<Item = &'a Sample> {
    let samples = profile.sample.iter();
    samples.filter(move |sample| profile.label(sample, key) == Some(value))
}

fn has_function(profile: &Profile, function: &str) -> bool {
    let ending = format!("::{function}");
    let mut samples = profile.sample.iter();
    samples.any(|sample| {
        let names = profile.names(sample);
        names.iter().any(|name| name.ends_with(&ending))
    })
}

fn page(path: &str) -> Profile {
    let server = serve("127.0.0.1:0").unwrap();
    let answer = request(server.address(), "GET", path);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("content-disposition"),
        Some("attachment; filename=\"wall\"")
    );
    let profile = Profile::read(&answer.body);
    assert_eq!(
        profile.sample_types(),
        [("samples", "count"), ("time", "nanoseconds")]
    );
    profile
}

#[inline(never)]
fn spins(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[test]
fn the_sum_is_elapsed_time_times_threads_and_each_state_has_its_share() {
    child::run(
        "the_sum_is_elapsed_time_times_threads_and_each_state_has_its_share",
        "",
        || {
            const SLEEPERS: usize = 20;
            let over = AtomicBool::new(false);
            let ready = AtomicUsize::new(0);
            let lock = Mutex::new(());
            let held = lock.lock().unwrap();
            let (sender, receiver) = mpsc::channel::<()>();
            let receiver = Mutex::new(receiver);
            thread::scope(|scope| {
                for _ in 0..SLEEPERS {
                    scope.spawn(|| {
                        ready.fetch_add(1, Ordering::SeqCst);
                        while !over.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(300));
                        }
                    });
                }
                for _ in 0..10 {
                    scope.spawn(|| {
                        ready.fetch_add(1, Ordering::SeqCst);
                        drop(lock.lock());
                    });
                }
                scope.spawn(|| {
                    ready.fetch_add(1, Ordering::SeqCst);
                    receiver.lock().unwrap().recv()
                });
                scope.spawn(|| {
                    ready.fetch_add(1, Ordering::SeqCst);
                    spins(&over);
                });
                while ready.load(Ordering::SeqCst) < SLEEPERS + 12 {
                    thread::yield_now();
                }
                let profile = page("/debug/pprof/wall?seconds=3");
                // A recording need not read one certain thread.
                while !has_function(&page("/debug/pprof/wall?seconds=1"), "spins") {}
                over.store(true, Ordering::Relaxed);
                drop(held);
                drop(sender);

                // The threads above, this one and the test harness's.
                let threads = (SLEEPERS + 14) as f64;
                let elapsed = profile.duration_nanos as f64;
                assert!(elapsed >= 3e9);
                let total = time_of(&profile.sample);
                // The last look may lack threads that are just ending.
                assert!(
                    (total / elapsed - threads).abs() < 0.02 * threads,
                    "{total} {elapsed}"
                );
                let comments = profile.comments().join("\n");
                let looks = comments.split_whitespace().nth(1).unwrap();
                let looks: f64 = looks.parse().expect("the number of looks");
                // 8 threads a look. Looks that stand for different times carry less than as many equal
                // ones: taken as half of them.
                let reads = looks * 8.0 / 2.0;
                for (state, count) in [("sleep", SLEEPERS), ("lock", 10)] {
                    let share = count as f64 / threads;
                    let error = 5.0 * (share * (1.0 - share) / reads).sqrt();
                    let found = time_of(with(&profile, "state", state)) / total;
                    assert!(
                        (found - share).abs() < error,
                        "{state}: {found} for {share}"
                    );
                }
            });
        },
    );
}

#[test]
fn waiting_tasks_have_their_time_and_the_path_of_fgprof_has_the_same_page() {
    child::run(
        "waiting_tasks_have_their_time_and_the_path_of_fgprof_has_the_same_page",
        "",
        || {
            let mut context = Context::from_waker(Waker::noop());
            let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
            let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
            for name in ["long", "long", "long", "short"] {
                let kept = Arc::clone(&kept);
                let waits = std::future::poll_fn(move |context| {
                    *kept.lock().unwrap() = Some(context.waker().clone());
                    std::task::Poll::Pending
                });
                tasks.push(Box::pin(waits.tracked_as(name)));
            }
            for task in &mut tasks {
                assert!(task.as_mut().poll(&mut context).is_pending());
            }
            let profile = page("/debug/fgprof?seconds=1");
            let elapsed = profile.duration_nanos as f64;
            let of = |name| time_of(with(&profile, "task", name)) / elapsed;
            // All slots are read at each look.
            assert!((of("long") - 3.0).abs() < 0.01, "{}", of("long"));
            assert!((of("short") - 1.0).abs() < 0.01, "{}", of("short"));
        },
    );
}
