//! Measures the cost of tracking a task, and the time to read a million tasks.
//!
//! 1. A future that keeps a clone of its waker at each poll, below several boxed `async` blocks.
//!    Prints the CPU time of a poll and the wake before it: raw, tracked with and without stacks,
//!    and with other crates' instrumentation of each level.
//! 2. The same for programs that do little else on tokio's scheduler.
//! 3. A million suspended tasks: memory, the time of `task::tasks()`, and the longest time without
//!    a poll meanwhile among a hundred busy tasks on another thread.
//!
//! `tasks [ROUNDS [TASKS]]`, 15 rounds and 1,000,000 tasks by default.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll::task::{self, TrackExt};
use plimsoll_bench::{clock, machine, process_memory, quantiles::median};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const LEVELS: [usize; 4] = [0, 2, 6, 14];

const POLLS: u32 = 300_000;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: usize| {
        arguments.next().map_or(otherwise, |argument| {
            argument.parse().expect("a number of rounds, and of tasks")
        })
    };
    let (rounds, tasks) = (number(15), number(1_000_000));
    println!("{}\n", machine::describe());
    polls(rounds);
    schedulers(rounds);
    many(tasks);
}

/// An executor's record of a task: only a count of wakes.
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The waker of the last poll.
type Kept = Arc<Mutex<Option<Waker>>>;

/// Keeps the waker of its last poll, and is never ready.
struct Keeps(Kept);

impl Future for Keeps {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.lock().expect("no holder panics") = Some(context.waker().clone());
        Poll::Pending
    }
}

fn nested(levels: usize, leaf: Boxed, level: fn(Boxed) -> Boxed) -> Boxed {
    (0..levels).fold(leaf, |inner, _| level(inner))
}

fn plain_level(inner: Boxed) -> Boxed {
    Box::pin(async move {
        inner.await;
        black_box(());
    })
}

fn backtrace_level(inner: Boxed) -> Boxed {
    Box::pin(async_backtrace::frame!(async move {
        inner.await;
        black_box(());
    }))
}

fn await_tree_level(inner: Boxed) -> Boxed {
    use await_tree::InstrumentAwait;
    Box::pin(async move {
        inner.instrument_await("level").await;
        black_box(());
    })
}

/// The name of a variant, and the function that makes a task of a waiting future below this many
/// levels.
type Variant = (&'static str, fn(usize, Boxed) -> Boxed);

fn variants() -> [Variant; 5] {
    [
        ("raw", |levels, leaf| nested(levels, leaf, plain_level)),
        ("tracked, no stacks", |levels, leaf| {
            Box::pin(nested(levels, leaf, plain_level).tracked())
        }),
        ("tracked", |levels, leaf| {
            Box::pin(nested(levels, leaf, plain_level).tracked())
        }),
        ("async-backtrace", |levels, leaf| {
            // The outermost frame, without which there is no trace, is the task's.
            Box::pin(async_backtrace::frame!(nested(
                levels,
                leaf,
                backtrace_level
            )))
        }),
        ("await-tree", |levels, leaf| {
            let registry = await_tree::Registry::new(Default::default());
            let root = registry.register_anonymous("task");
            Box::pin(root.instrument(nested(levels, leaf, await_tree_level)))
        }),
    ]
}

fn polls(rounds: usize) {
    println!(
        "processor time of a wake and a poll in ns, medians of {rounds} alternating rounds, and what it is more than raw"
    );
    println!("(aim for two levels: 60 more with frame pointers, 120 without)");
    print!("| boxed levels |");
    for (name, _) in variants() {
        print!(" {name} |");
    }
    println!("\n|---|---|---|---|---|---|");
    for levels in LEVELS {
        let mut times = variants().map(|_| Vec::new());
        for _ in 0..rounds {
            for (times, (name, make)) in times.iter_mut().zip(variants()) {
                task::set_stacks(name == "tracked");
                times.push(wake_and_poll(levels, make));
            }
        }
        task::set_stacks(true);
        let times = times.map(|mut times| median(&mut times));
        print!("| {levels} | {:.0} |", times[0]);
        for time in &times[1..] {
            print!(" {time:.0} ({:+.0}) |", time - times[0]);
        }
        println!();
    }
}

fn wake_and_poll(levels: usize, make: fn(usize, Boxed) -> Boxed) -> f64 {
    let kept = Arc::new(Mutex::new(None));
    let mut task = make(levels, Box::pin(Keeps(kept.clone())));
    let waker: Waker = Arc::new(Woken(AtomicU64::new(0))).into();
    let mut context = Context::from_waker(&waker);
    let mut poll = || {
        assert!(task.as_mut().poll(&mut context).is_pending());
        let waker = kept.lock().expect("no holder panics").take();
        waker.expect("it was kept").wake();
    };
    for _ in 0..POLLS / 10 {
        poll();
    }
    let start = clock::process();
    for _ in 0..POLLS {
        poll();
    }
    (clock::process() - start) as f64 / f64::from(POLLS)
}

/// A program on tokio's scheduler, whose spawned tasks are tracked or not.
type Program = fn(bool) -> Boxed;

const TURNS: u32 = 100_000;

fn spawn(
    tracked: bool,
    future: impl Future<Output = ()> + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    if tracked {
        tokio::spawn(future.tracked())
    } else {
        tokio::spawn(future)
    }
}

async fn joined(handle: tokio::task::JoinHandle<()>) {
    handle.await.expect("it does not panic");
}

fn yields(tracked: bool) -> Boxed {
    Box::pin(async move {
        joined(spawn(tracked, async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }))
        .await;
    })
}

fn throws(tracked: bool) -> Boxed {
    Box::pin(async move {
        let (to, mut from) = tokio::sync::mpsc::channel(1);
        let (back, mut answers) = tokio::sync::mpsc::channel(1);
        let answering = spawn(tracked, async move {
            while let Some(ball) = from.recv().await {
                if back.send(ball).await.is_err() {
                    break;
                }
            }
        });
        joined(spawn(tracked, async move {
            for ball in 0..TURNS {
                to.send(ball).await.expect("it is received");
                answers.recv().await.expect("it is answered");
            }
        }))
        .await;
        joined(answering).await;
    })
}

fn spawns(tracked: bool) -> Boxed {
    Box::pin(async move {
        for _ in 0..TURNS {
            joined(spawn(tracked, async {})).await;
        }
    })
}

fn schedulers(rounds: usize) {
    const PROGRAMS: [(&str, Program); 3] = [
        ("yield", yields),
        ("channel, there and back", throws),
        ("spawn and join", spawns),
    ];
    println!(
        "\non tokio's scheduler of one thread, processor time of a turn in ns (aim for yield: 1.15 with frame pointers, 1.30 without)"
    );
    println!("| program | raw | tracked | ratio |");
    println!("|---|---|---|---|");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be made");
    for (name, program) in PROGRAMS {
        let mut times = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let [raw, tracked] = [false, true].map(|tracked| {
                let start = clock::process();
                runtime.block_on(program(tracked));
                (clock::process() - start) as f64 / f64::from(TURNS)
            });
            times[0].push(raw);
            times[1].push(tracked);
            ratios.push(tracked / raw);
        }
        let [raw, tracked] = times.map(|mut times| median(&mut times));
        println!(
            "| {name} | {raw:.0} | {tracked:.0} | {:.2} |",
            median(&mut ratios)
        );
    }
}

/// The number of busy tasks beside the suspended ones.
const BUSY: usize = 100;

fn many(tasks: usize) {
    println!("\n{tasks} suspended tasks, beside {BUSY} busy ones on another thread");
    let status = process_memory::Status::open();
    let suspended = |track: bool| -> (f64, Vec<Boxed>, Vec<Kept>) {
        let mut all: Vec<Boxed> = Vec::with_capacity(tasks);
        let mut kept = Vec::with_capacity(tasks);
        let waker: Waker = Arc::new(Woken(AtomicU64::new(0))).into();
        let mut context = Context::from_waker(&waker);
        let before = status.kib("VmRSS") * 1024;
        for _ in 0..tasks {
            let place = Arc::new(Mutex::new(None));
            let leaf: Boxed = Box::pin(Keeps(place.clone()));
            let mut task: Boxed = if track {
                Box::pin(nested(2, leaf, plain_level).tracked())
            } else {
                nested(2, leaf, plain_level)
            };
            assert!(task.as_mut().poll(&mut context).is_pending());
            all.push(task);
            kept.push(place);
        }
        let after = status.kib("VmRSS") * 1024;
        ((after - before) as f64 / tasks as f64, all, kept)
    };
    let (raw, ..) = suspended(false);
    let (tracked, all, kept) = suspended(true);
    println!("| | |\n|---|---|");
    println!(
        "| memory of a task, more than raw (aim: 150 B) | {:.0} B |",
        tracked - raw
    );

    let done = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&done, &longest));
        std::thread::sleep(Duration::from_millis(500));
        let gap = |while_so: &mut dyn FnMut()| {
            longest.store(0, Ordering::SeqCst);
            while_so();
            Duration::from_nanos(longest.load(Ordering::SeqCst))
        };
        let mut times = Vec::new();
        let mut gaps = Vec::new();
        for _ in 0..15 {
            gaps.push(gap(&mut || {
                let start = Instant::now();
                let mut seen = 0;
                task::for_each(|_| seen += 1);
                times.push(start.elapsed().as_secs_f64() * 1e3);
                assert!(seen >= tasks);
            }));
        }
        let quiet = (0..15).map(|_| gap(&mut || std::thread::sleep(Duration::from_millis(60))));
        let quiet: Vec<Duration> = quiet.collect();
        let ordered = |gaps: &[Duration]| {
            let mut micros: Vec<f64> = gaps.iter().map(|gap| gap.as_secs_f64() * 1e6).collect();
            let most = micros.iter().copied().fold(0.0, f64::max);
            (median(&mut micros), most)
        };
        let most = times.iter().copied().fold(0.0, f64::max);
        println!(
            "| all looked at, median (aim: 200 ms) | {:.0} ms, at most {most:.0} |",
            median(&mut times)
        );
        let (median_gap, most) = ordered(&gaps);
        println!(
            "| longest time without a poll meanwhile, median of 15 (aim: 100 us) | {median_gap:.0} us, at most {most:.0} |"
        );
        let (median_gap, most) = ordered(&quiet);
        println!("| the same without a reader, 60 ms | {median_gap:.0} us, at most {most:.0} |");
        done.store(true, Ordering::Relaxed);
    });
    drop(all);
    drop(kept);
}

/// Polls busy tasks in turn, and records the longest time between two polls.
fn busy(done: &AtomicBool, longest: &AtomicU64) {
    let waker: Waker = Arc::new(Woken(AtomicU64::new(0))).into();
    let mut context = Context::from_waker(&waker);
    let mut tasks: Vec<_> = (0..BUSY)
        .map(|_| {
            let kept = Arc::new(Mutex::new(None));
            (Box::pin(Keeps(kept.clone()).tracked()), kept)
        })
        .collect();
    let mut last = Instant::now();
    while !done.load(Ordering::Relaxed) {
        for (task, kept) in &mut tasks {
            assert!(task.as_mut().poll(&mut context).is_pending());
            let waker = kept.lock().expect("no holder panics").take();
            waker.expect("it was kept").wake();
            let now = Instant::now();
            longest.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
            last = now;
        }
    }
}
