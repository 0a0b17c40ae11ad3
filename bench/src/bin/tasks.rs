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
use plimsoll_bench::arguments::number;
use plimsoll_bench::quantiles::{median, quantile};
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{clock, machine, process_memory, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const LEVELS: [usize; 3] = [0, 6, 14];

const POLLS: u32 = 300_000;

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

fn main() {
    let (rounds, tasks) = (number(1, 15), number(2, 1_000_000));
    machine::print();
    polls(rounds);
    schedulers(rounds);
    many(tasks);
}

/// An executor's record of a task: only a count of wakes.
#[derive(Default)]
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

const VARIANTS: [Variant; 5] = [
    ("raw", |levels, leaf| nested(levels, leaf, plain_level)),
    ("tracked, no stacks", tracked_levels),
    ("tracked", tracked_levels),
    ("async-backtrace", |levels, leaf| {
        // The outermost frame is the task's: a trace needs one.
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
];

fn tracked_levels(levels: usize, leaf: Boxed) -> Boxed {
    Box::pin(nested(levels, leaf, plain_level).tracked())
}

fn polls(rounds: usize) {
    println!("processor time of a wake and a poll in ns, medians of {rounds} alternating rounds,");
    println!("and what it is more than raw");
    let names = VARIANTS.map(|(name, _)| name).join(" | ");
    table::head(&format!("| boxed levels | {names} |"));
    for levels in LEVELS {
        let times = alternate::<5>(rounds, |variant| {
            let (name, make) = VARIANTS[variant];
            task::set_stacks(name == "tracked");
            wake_and_poll(levels, make)
        });
        task::set_stacks(true);
        let [raw, others @ ..] = times.medians();
        print!("| {levels} | {raw:.0} |");
        for time in others {
            print!(" {time:.0} ({:+.0}) |", time - raw);
        }
        println!();
    }
}

fn wake_and_poll(levels: usize, make: fn(usize, Boxed) -> Boxed) -> f64 {
    let kept = Arc::new(Mutex::new(None));
    let mut task = make(levels, Box::pin(Keeps(kept.clone())));
    let waker: Waker = Arc::new(Woken::default()).into();
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
    println!("\non tokio's scheduler of one thread, processor time of a turn in ns");
    println!("(aim for yield: 1.15 with frame pointers, 1.30 without)");
    table::head("| program | raw | tracked | ratio |");
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime can be made");
    for (name, program) in PROGRAMS {
        let times = alternate::<2>(rounds, |variant| {
            let start = clock::process();
            runtime.block_on(program(variant == 1));
            (clock::process() - start) as f64 / f64::from(TURNS)
        });
        let ([raw, tracked], [_, ratio]) = (times.medians(), times.ratios());
        println!("| {name} | {raw:.0} | {tracked:.0} | {ratio:.2} |");
    }
}

/// The number of busy tasks beside the suspended ones.
const BUSY: usize = 100;

fn many(tasks: usize) {
    println!("\n{tasks} suspended tasks, beside {BUSY} busy ones on another thread");
    let status = process_memory::Status::open();
    // The tasks, with their wakers and the growth of the memory for each.
    let suspended = |make: fn(usize, Boxed) -> Boxed| {
        let mut all = Vec::with_capacity(tasks);
        let waker: Waker = Arc::new(Woken::default()).into();
        let mut context = Context::from_waker(&waker);
        let before = status.kib("VmRSS");
        for _ in 0..tasks {
            let kept: Kept = Arc::default();
            let mut task = make(2, Box::pin(Keeps(kept.clone())));
            assert!(task.as_mut().poll(&mut context).is_pending());
            all.push((task, kept));
        }
        let grown = (status.kib("VmRSS") - before) << 10;
        (grown as f64 / tasks as f64, all)
    };
    let (raw, _) = suspended(|levels, leaf| nested(levels, leaf, plain_level));
    let (tracked, all) = suspended(tracked_levels);
    table::head("| | median | largest |");
    let memory = tracked - raw;
    println!("| memory of a task, more than raw (aim: 150 B) | {memory:.0} B | |");

    let done = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| busy(&done, &longest));
        std::thread::sleep(Duration::from_millis(500));
        let mut times = Vec::new();
        let reading = gaps(&longest, || {
            let start = Instant::now();
            let mut seen = 0;
            task::for_each(|_| seen += 1);
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert!(seen >= tasks);
        });
        let quiet = gaps(&longest, || std::thread::sleep(Duration::from_millis(60)));
        for (what, unit, figures) in [
            ("all looked at (aim: 200 ms)", "ms", &times),
            (
                "longest time without a poll meanwhile (aim: 100 us)",
                "us",
                &reading,
            ),
            ("the same without a reader, 60 ms", "us", &quiet),
        ] {
            let [middle, most] = [median(figures), quantile(figures, 1.0)];
            println!("| {what} | {middle:.0} {unit} | {most:.0} |");
        }
        done.store(true, Ordering::Relaxed);
    });
    drop(all);
}

/// Does the work 15 times; returns the longest time without a poll of each, in microseconds.
fn gaps(longest: &AtomicU64, mut work: impl FnMut()) -> Vec<f64> {
    let gap = |_| {
        longest.store(0, Ordering::SeqCst);
        work();
        longest.load(Ordering::SeqCst) as f64 / 1000.0
    };
    (0..15).map(gap).collect()
}

/// Polls busy tasks in turn, and records the longest time between two polls.
fn busy(done: &AtomicBool, longest: &AtomicU64) {
    let waker: Waker = Arc::new(Woken::default()).into();
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
