//! Measures how long it takes to read all metrics, to answer `/metrics`, and to report a pause.
//!
//! `metrics [CALLS]` makes 5,000 calls in each situation by default, or as many as fit into 20
//! seconds. Each situation is a separate process, in which a collector has run. CPU time is the
//! reader's own. The last situation has 1,000 tracked tasks, which are counted one by one.

use std::hint::black_box;
use std::time::Duration;

use plimsoll::gc::{Cause, Collector};
use plimsoll::metrics::{self, Sample};
use plimsoll::task::TrackExt;
use plimsoll_bench::arguments::number;
use plimsoll_bench::calls::{Times, cells};
use plimsoll_bench::crew::Crew;
use plimsoll_bench::load::{Load, Work};
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{children, clock, machine, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const CALLS: usize = 5000;

/// The mean time of a call above which the number of calls is reduced.
const LONGEST: Duration = Duration::from_millis(4);

/// The load beside the reader: busy threads, idle threads, and tracked tasks.
const SITUATIONS: [[usize; 3]; 3] = [[64, 0, 0], [0, 64, 0], [0, 0, 1000]];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("reads") => reads(SITUATIONS[number(2, 0)], number(3, CALLS)),
        Some("guards") => guards(number(2, CALLS)),
        _ => all(number(1, CALLS)),
    }
}

fn all(calls: usize) {
    machine::print();
    let names = metrics::all().len();
    println!("CPU time in microseconds; all metrics are {names}");
    table::head("| what | beside it | p50 | p99 | target |");
    let calls = calls.to_string();
    for situation in 0..SITUATIONS.len() {
        let arguments = ["reads", &situation.to_string(), &calls];
        print!("{}", children::again("", &arguments));
    }
    println!("\nnanoseconds of a guard, in a cycle of a collector");
    table::head("| guard | median | target |");
    print!("{}", children::again("", &["guards", &calls]));
}

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
    let time = |what: &str, target: &str, read: &mut dyn FnMut()| {
        read();
        let times = Times::measure(calls, LONGEST, read);
        let cells = cells(&times.cpu);
        println!("| {what} | {beside} | {cells} | p99 < {target} |");
    };
    time("metrics::read of all", "20", &mut || {
        metrics::read(&mut samples);
    });
    time("/metrics", "1000", &mut || {
        let page = plimsoll::http::handle("GET", "/metrics", "");
        assert!(page.status == 200);
    });
    drop((load, tasks));
}

/// Guards that are timed together.
const BATCH: usize = 100;

fn guards(batches: usize) {
    // Starts the maintenance thread, which prepares the heap profile between two cycles.
    let _plimsoll = plimsoll::start();
    let collector = Collector::register("bench").expect("a new name");
    let print = |what: &str, target: &str, work: &dyn Fn()| {
        let batch = |_| {
            let began = clock::wall();
            (0..BATCH).for_each(|_| work());
            (clock::wall() - began) as f64 / BATCH as f64
        };
        let times: Vec<f64> = (0..batches).map(batch).collect();
        println!("| {what} | {:.0} | {target} |", median(&times));
    };
    let cycle = collector.begin(Cause::Automatic);
    print("a pause", "< 100", &|| cycle.pause().end());
    drop(cycle);
    print(
        "a whole cycle: a pause, a mark termination, a sweep",
        "",
        &|| {
            let cycle = collector.begin(Cause::Automatic);
            cycle.pause().end();
            cycle.mark_termination().finish(1, 2);
            drop(cycle.sweep());
        },
    );
}
