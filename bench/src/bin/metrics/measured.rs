//! Measures how long it takes to read all metrics and statistics, to answer `/metrics`, and to
//! report a pause.
//!
//! `metrics [CALLS]` runs over the system's allocator, `metrics_jemalloc` and `metrics_mimalloc`
//! over those with their page figures. Makes 5,000 calls in each situation by default, or as many
//! as fit into 20 seconds. Each situation is a separate process, in which a collector has run. CPU
//! time is the reader's own; wall time includes the time for which other threads used the
//! processor. The last situation has 1,000 tracked tasks, which are counted one by one.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll::gc::{Cause, Collector};
use plimsoll::metrics::{self, Sample};
use plimsoll::task::TrackExt;
use plimsoll_bench::crew::Crew;
use plimsoll_bench::load::{Load, Work};
use plimsoll_bench::quantiles::{median, quantile};
use plimsoll_bench::{children, clock, machine};

const CALLS: usize = 5000;

/// The mean time of a call above which the number of calls is reduced.
const LONGEST: Duration = Duration::from_millis(4);

/// The load beside the reader: busy threads, idle threads, and tracked tasks.
const SITUATIONS: [[usize; 3]; 5] = [[0, 0, 0], [2, 0, 0], [64, 0, 0], [0, 64, 0], [0, 0, 1000]];

pub fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        let argument = arguments.get(at);
        argument.map_or(default, |number| number.parse().expect("a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("reads") => reads(SITUATIONS[number(1, 0)], number(2, CALLS)),
        Some("guards") => guards(number(1, CALLS)),
        _ => all(number(0, CALLS)),
    }
}

fn all(calls: usize) {
    println!("{}\n", machine::describe());
    let names = metrics::all().len();
    println!("microseconds, and allocations after the first call");
    println!(
        "| what | beside it | calls | cpu p50 | cpu p99 | wall p50 | wall p99 | allocations | target |\n|---|---|---|---|---|---|---|---|---|"
    );
    let calls = calls.to_string();
    for situation in 0..SITUATIONS.len() {
        let arguments = ["reads", &situation.to_string(), &calls];
        print!("{}", children::again("", &arguments));
    }
    println!("\nall metrics are {names}; nanoseconds of a guard, in a cycle of a collector");
    println!("| guard | median | target |\n|---|---|---|");
    print!("{}", children::again("", &["guards", &calls]));
}

/// The name of a reading, its target, and the function that reads.
type Reader<'a> = (&'a str, &'a str, Box<dyn FnMut() + 'a>);

fn reads([busy, idle, tasks]: [usize; 3], calls: usize) {
    let collector = Collector::register("bench").expect("a new name");
    for _ in 0..10 {
        let cycle = collector.begin(Cause::Automatic);
        cycle.mark_termination().finish(1, 2);
    }
    let tasks: Vec<_> = (0..tasks).map(|_| async {}.tracked()).collect();
    let crew = Crew::start(idle, || drop(black_box(Box::new(1))));
    let load = Load::start(busy, Work::RandomSizes);
    let (idle, tasks_there) = (crew.size(), tasks.len());
    let beside = format!("{busy} busy threads, {idle} idle, {tasks_there} tasks");

    let mut samples: Vec<_> = metrics::all()
        .map(|metric| Sample::new(metric.name))
        .collect();
    let readers: [Reader; 4] = [
        (
            "metrics::read of all",
            "cpu p99 < 20",
            Box::new(|| metrics::read(&mut samples)),
        ),
        (
            "heap_stats()",
            "",
            Box::new(|| {
                black_box(plimsoll::heap_stats());
            }),
        ),
        (
            "mem_stats()",
            "cpu p99 < 300",
            Box::new(|| {
                black_box(plimsoll::mem_stats());
            }),
        ),
        (
            "/metrics",
            "cpu p99 < 1000",
            Box::new(|| {
                let page = plimsoll::http::handle("GET", "/metrics", "");
                assert!(page.status == 200);
            }),
        ),
    ];
    for (what, target, mut read) in readers {
        read();
        let (began, longest) = (Instant::now(), LONGEST * calls as u32);
        let (mut cpu, mut wall) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
        while cpu.len() < calls && (began.elapsed() < longest || cpu.is_empty()) {
            let (cpu_before, wall_before) = (clock::thread(), clock::wall());
            read();
            let wall_after = clock::wall();
            cpu.push((clock::thread() - cpu_before) as f64 / 1000.0);
            wall.push((wall_after - wall_before) as f64 / 1000.0);
        }
        // With busy threads, the difference would include their allocations.
        let allocations = if busy == 0 {
            let before = plimsoll::heap_stats().mallocs;
            read();
            (plimsoll::heap_stats().mallocs - before).to_string()
        } else {
            String::new()
        };
        let count = cpu.len();
        let [cpu_middle, cpu_p99] = [0.5, 0.99].map(|q| quantile(&mut cpu, q));
        let [middle, p99] = [0.5, 0.99].map(|q| quantile(&mut wall, q));
        println!(
            "| {what} | {beside} | {count} | {cpu_middle:.1} | {cpu_p99:.1} | {middle:.1} | {p99:.1} | {allocations} | {target} |"
        );
    }
    drop((load, tasks));
}

/// Guards that are timed together.
const BATCH: usize = 100;

fn guards(batches: usize) {
    // Starts the maintenance thread, which prepares the heap profile between two cycles.
    let _plimsoll = plimsoll::start();
    let collector = Collector::register("bench").expect("a new name");
    let local = Collector::register_local("bench").expect("a known name");
    let print = |what: &str, target: &str, mut work: Box<dyn FnMut()>| {
        let mut times: Vec<f64> = (0..batches)
            .map(|_| {
                let began = clock::wall();
                (0..BATCH).for_each(|_| work());
                (clock::wall() - began) as f64 / BATCH as f64
            })
            .collect();
        println!("| {what} | {:.0} | {target} |", median(&mut times));
    };
    let cycle = collector.begin(Cause::Automatic);
    print("a pause", "< 100", Box::new(move || cycle.pause().end()));
    let cycle = local.begin(Cause::Automatic);
    print(
        "a pause of one thread",
        "< 100",
        Box::new(move || cycle.pause().end()),
    );
    print(
        "a whole cycle: a pause, a mark termination, a sweep",
        "",
        Box::new(move || {
            let cycle = collector.begin(Cause::Automatic);
            cycle.pause().end();
            cycle.mark_termination().finish(1, 2);
            drop(cycle.sweep());
        }),
    );
}
