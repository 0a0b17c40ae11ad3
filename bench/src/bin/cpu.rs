//! Measures CPU and wall-clock profiles: their cost, the time of the handler, and their accuracy.
//!
//! `cpu [SECONDS]`, 30 seconds by default for each table. *Cost*: two threads compute, and the rate of
//! samples changes after each quarter of a second; the ratio is the CPU time of a unit of work to that
//! of the round's unit without samples, median of all rounds. The crate pprof (framehop, 100 Hz,
//! `ITIMER_PROF`) runs in the same rounds. *Handler*: durations in the histogram
//! `/plimsoll/cpu/handler:seconds`, whose steps are some per cent wide. *Accuracy*: functions that use
//! 50, 30 and 20 % by the threads' clocks, and 200 threads that live for 10 ms of CPU time. *Wall*: the
//! CPU time that a wall-clock profile takes beside 1,000 blocked threads and 100,000 tasks.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::metrics::{self, Sample, Value};
use plimsoll::profile::{Detail, Snapshot, cpu, frames};
use plimsoll::task::TrackExt;
use plimsoll_bench::quantiles::{median, quantile};
use plimsoll_bench::{clock, machine};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let seconds: u64 = std::env::args()
        .nth(1)
        .map_or(30, |seconds| seconds.parse().expect("a number of seconds"));
    println!("{}\n", machine::describe());
    accuracy(seconds);
    cost(seconds);
    wall(seconds);
}

#[inline(never)]
fn at_depth(depth: u32, work: &mut dyn FnMut()) {
    match depth {
        0 => work(),
        _ => at_depth(depth - 1, work),
    }
    black_box(());
}

fn compute() {
    for turn in 0..10_000_u64 {
        black_box(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// The modes of a round: samples a second, or `None` for the crate pprof.
const MODES: [(&str, Option<u32>); 4] = [
    ("off", Some(0)),
    ("100 Hz", Some(100)),
    ("1000 Hz", Some(1000)),
    ("crate pprof, 100 Hz", None),
];

fn cost(seconds: u64) {
    const SLICE: Duration = Duration::from_millis(250);
    let over = AtomicBool::new(false);
    let units = AtomicU64::new(0);
    let mut times = [const { Vec::new() }; MODES.len()];
    let before = handler_times();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                at_depth(36, &mut || {
                    while !over.load(Ordering::Relaxed) {
                        compute();
                        units.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) || times[0].len() < 3 {
            for ((_, rate), times) in MODES.iter().zip(&mut times) {
                let guard = match rate {
                    Some(rate) => {
                        cpu::set_rate(*rate).expect("a signal is unused");
                        None
                    }
                    None => Some(
                        pprof::ProfilerGuardBuilder::default()
                            .frequency(100)
                            .build()
                            .expect("a profiler"),
                    ),
                };
                let (cpu_before, units_before) = (clock::process(), units.load(Ordering::Relaxed));
                thread::sleep(SLICE);
                let used = clock::process() - cpu_before;
                let done = units.load(Ordering::Relaxed) - units_before;
                cpu::set_rate(0).expect("ends");
                drop(guard);
                assert!(done > 0, "nothing was computed");
                times.push(used as f64 / done as f64);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let handlers = handler_times();
    println!("CPU time of a computing program, and the handler at a depth of about 40\n");
    println!("| samples | CPU time |\n|---|---|");
    for (at, (name, _)) in MODES.iter().enumerate() {
        let mut ratios: Vec<f64> = times[at]
            .iter()
            .zip(&times[0])
            .map(|(with, off)| with / off)
            .collect();
        println!("| {name} | {:.4} |", median(&mut ratios));
    }
    let counts: Vec<u64> = handlers
        .0
        .iter()
        .zip(&before.0)
        .map(|(now, then)| now - then)
        .collect();
    let total: u64 = counts.iter().sum();
    assert!(total > 0, "no sample was taken");
    let upper = |share: f64| {
        let mut sum = 0;
        let at = counts.iter().position(|count| {
            sum += count;
            sum as f64 >= share * total as f64
        });
        handlers.1[at.unwrap_or(counts.len() - 1) + 1] * 1e6
    };
    println!(
        "\nhandler, {total} samples: p50 at most {:.2} us, p99 at most {:.2} us\n",
        upper(0.5),
        upper(0.99)
    );
}

/// Returns counts and limits of the durations of the handler.
fn handler_times() -> (Vec<u64>, Vec<f64>) {
    let mut samples = [Sample::new("/plimsoll/cpu/handler:seconds")];
    metrics::read(&mut samples);
    match &samples[0].value {
        Value::Float64Histogram(histogram) => {
            (histogram.counts.clone(), histogram.buckets.to_vec())
        }
        _ => panic!("the metric is a histogram"),
    }
}

#[inline(never)]
fn burn(nanoseconds: u64) {
    let end = clock::thread() + nanoseconds;
    while clock::thread() < end {
        compute();
    }
    black_box(());
}

macro_rules! burners {
    ($($name:ident $number:literal)*) => {
        // The number keeps the linker from folding the functions.
        $(#[inline(never)] fn $name(nanoseconds: u64) { burn(nanoseconds); black_box($number); })*
    };
}

burners!(uses_half 1 uses_three_tenths 2 uses_a_fifth 3 is_short 4);

fn share(profile: &Snapshot, function: &str) -> f64 {
    let ending = format!("::{function}");
    let (mut sum, mut found) = (0, 0);
    for record in profile.records() {
        let time = record.value("cpu").expect("a type of the profile");
        sum += time;
        let names = frames(record.stack(), Detail::Names);
        let is_there = names.iter().any(|frame| {
            frame
                .function
                .as_ref()
                .is_some_and(|name| name.ends_with(&ending))
        });
        found += if is_there { time } else { 0 };
    }
    100.0 * found as f64 / sum as f64
}

fn accuracy(seconds: u64) {
    let (began, cpu_before) = (Instant::now(), clock::process());
    cpu::start().expect("none runs");
    let short = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while began.elapsed() < Duration::from_secs(seconds) {
                    uses_half(3_500_000);
                    uses_three_tenths(2_100_000);
                    uses_a_fifth(1_400_000);
                }
            });
        }
        for _ in 0..200 {
            let life = || {
                let began = clock::thread();
                is_short(10_000_000);
                short.fetch_add(clock::thread() - began, Ordering::Relaxed);
            };
            scope.spawn(life).join().expect("it returns");
        }
    });
    let profile = cpu::stop().expect("it was started");
    let used = (clock::process() - cpu_before) as f64;
    let sampled: i64 = profile
        .records()
        .filter_map(|record| record.value("cpu"))
        .sum();
    let of_short = short.load(Ordering::Relaxed) as f64 / used * 100.0;
    let rest = 100.0 - of_short;
    println!("accuracy at 100 Hz, {:.0} s of CPU time\n", used / 1e9);
    println!("| function | share by clocks | share of samples |\n|---|---|---|");
    for (function, expected) in [
        ("uses_half", rest * 0.5),
        ("uses_three_tenths", rest * 0.3),
        ("uses_a_fifth", rest * 0.2),
        ("is_short", of_short),
    ] {
        println!(
            "| `{function}` | {expected:.2} % | {:.2} % |",
            share(&profile, function)
        );
    }
    println!(
        "\nsum of samples: {:.4} of the process's CPU time\n",
        sampled as f64 / used
    );
}

fn wall(seconds: u64) {
    const THREADS: usize = 1000;
    const TASKS: usize = 100_000;
    let over = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let over = Arc::clone(&over);
            let builder = thread::Builder::new().stack_size(64 << 10);
            builder.spawn(move || over.wait()).expect("a thread")
        })
        .collect();
    let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
    for _ in 0..TASKS {
        let wakers = Arc::clone(&wakers);
        let mut task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(
            std::future::poll_fn(move |context| {
                wakers
                    .lock()
                    .expect("no panic")
                    .push(context.waker().clone());
                std::task::Poll::Pending
            })
            .tracked_as("waits"),
        );
        assert!(task.as_mut().poll(&mut context).is_pending());
        tasks.push(task);
    }
    let mut shares: Vec<f64> = (0..3)
        .map(|_| {
            let (began, before) = (Instant::now(), clock::process());
            let query = format!("seconds={seconds}");
            // Names are resolved within, which is the larger part of a short recording.
            let answer = plimsoll::http::handle("GET", "/debug/pprof/wall", &query);
            assert_eq!(answer.status, 200);
            (clock::process() - before) as f64 / began.elapsed().as_nanos() as f64 * 100.0
        })
        .collect();
    println!(
        "wall-clock profile of {seconds} s beside {THREADS} blocked threads and {TASKS} tasks: median {:.2} %, at most {:.2} % of one processor, with the resolution of names",
        median(&mut shares.clone()),
        quantile(&mut shares, 1.0)
    );
    over.wait();
    for thread in threads {
        thread.join().expect("it returns");
    }
}
