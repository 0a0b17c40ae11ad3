//! Measures CPU and wall-clock profiles: their cost, the time of the handler, and their accuracy.
//!
//! `cpu [SECONDS]`, 30 seconds by default for each table. *Cost*: two threads compute, and the rate of
//! samples changes after each quarter of a second; the ratio is the CPU time of a unit of work to that
//! of the round's unit without samples, median of all rounds. The crate pprof (framehop, 100 Hz,
//! `ITIMER_PROF`) runs in the same rounds. *Handler*: durations in the histogram
//! `/plimsoll/cpu/handler:seconds`, whose steps are some per cent wide. *Accuracy*: functions that use
//! 50, 30 and 20 % by the threads' clocks, and 200 threads that live for 10 ms of CPU time. *Wall*: the
//! CPU time that a wall-clock profile takes beside 1,000 blocked threads and 100,000 tasks.

use std::future::poll_fn;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::metrics::{self, Sample, Value};
use plimsoll::profile::{Detail, Snapshot, cpu, frames};
use plimsoll::task::TrackExt;
use plimsoll_bench::arguments::number;
use plimsoll_bench::crew::Crew;
use plimsoll_bench::quantiles::median;
use plimsoll_bench::rounds::ratio;
use plimsoll_bench::{clock, machine, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let seconds = number(1, 30) as u64;
    machine::print();
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
    table::head("| samples | CPU time |");
    for ((name, _), with) in MODES.iter().zip(&times) {
        println!("| {name} | {:.4} |", ratio(with, &times[0]));
    }
    let counts = handlers.0.iter().zip(&before.0);
    let counts: Vec<u64> = counts.map(|(now, then)| now - then).collect();
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

/// Returns the time of the samples in whose stack the function is.
fn time_of(profile: &Snapshot, function: &str) -> i64 {
    let ending = format!("::{function}");
    let is_in = |stack: &[usize]| {
        let frames = frames(stack, Detail::Names);
        let mut names = frames.iter().filter_map(|frame| frame.function.as_ref());
        names.any(|name| name.ends_with(&ending))
    };
    let records = profile.records().filter(|record| is_in(record.stack()));
    records.filter_map(|record| record.value("cpu")).sum()
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
    table::head("| function | share by clocks | share of samples |");
    for (function, expected) in [
        ("uses_half", rest * 0.5),
        ("uses_three_tenths", rest * 0.3),
        ("uses_a_fifth", rest * 0.2),
        ("is_short", of_short),
    ] {
        let share = time_of(&profile, function) as f64 / sampled as f64 * 100.0;
        println!("| `{function}` | {expected:.2} % | {share:.2} % |");
    }
    println!(
        "\nsum of samples: {:.4} of the process's CPU time\n",
        sampled as f64 / used
    );
}

fn wall(seconds: u64) {
    const THREADS: usize = 1000;
    const TASKS: usize = 100_000;
    let blocked = Crew::start(THREADS, || ());
    assert_eq!(blocked.size(), THREADS, "the system permits the threads");
    let wakers: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        let wakers = Arc::clone(&wakers);
        let waits = poll_fn(move |context| {
            let mut wakers = wakers.lock().expect("no panic");
            wakers.push(context.waker().clone());
            Poll::<()>::Pending
        });
        let mut task = Box::pin(waits.tracked_as("waits"));
        assert!(task.as_mut().poll(&mut context).is_pending());
        tasks.push(task);
    }
    let mut shares = Vec::new();
    for _ in 0..3 {
        let (began, before) = (Instant::now(), clock::process());
        let query = format!("seconds={seconds}");
        // Names are resolved within, which is the larger part of a short recording.
        let answer = plimsoll::http::handle("GET", "/debug/pprof/wall", &query);
        assert_eq!(answer.status, 200);
        let used = (clock::process() - before) as f64;
        shares.push(used / began.elapsed().as_nanos() as f64 * 100.0);
    }
    println!(
        "wall-clock profile of {seconds} s beside {THREADS} blocked threads and {TASKS} tasks: median {:.2} % of one processor, with the resolution of names",
        median(&shares)
    );
    drop(blocked);
}
