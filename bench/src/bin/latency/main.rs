//! Measures how long a reading of all statistics takes beside threads that allocate, in Rust and in Go.
//!
//! `latency [READINGS]`, 5,000 by default. Go's benchmarks `BenchmarkReadMemStatsLatency` and
//! `BenchmarkReadMetricsLatency` are the model: one thread less than there are processors builds trees of 70,000 nodes and
//! drops them; another reads, 100 µs after the last reading. Times are elapsed times. `PLIMSOLL_GO` names Go's command, by
//! default `go`; without it, the table has no row of Go.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll::metrics::{self, Sample};
use plimsoll_bench::arguments::number;
use plimsoll_bench::quantiles::quantile;
use plimsoll_bench::{machine, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const READINGS: usize = 5000;
const PAUSE: Duration = Duration::from_micros(100);

#[derive(Default)]
struct Node {
    _children: [Option<Box<Node>>; 16],
}

fn tree(depth: usize) -> Box<Node> {
    let child = |_| (depth > 0).then(|| tree(depth - 1));
    Box::new(Node {
        _children: std::array::from_fn(child),
    })
}

fn main() {
    let readings = number(1, READINGS).max(1);
    machine::print();
    println!("microseconds of a reading, of {readings}, beside threads that allocate");
    table::head("| reading | p50 | p90 | p99 |");
    let _plimsoll = plimsoll::start();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 1..threads {
        // It ends with the process.
        std::thread::spawn(|| {
            loop {
                black_box(tree(4));
            }
        });
    }
    print("`plimsoll::mem_stats()`", || {
        black_box(plimsoll::mem_stats());
    });
    let mut samples: Vec<Sample> = metrics::all().map(|one| Sample::new(one.name)).collect();
    let count = samples.len();
    print(
        &format!("`plimsoll::metrics::read`, {count} metrics"),
        || {
            metrics::read(black_box(&mut samples));
        },
    );
    if let Some([stats, metrics]) = go(readings) {
        println!("| Go's `runtime.ReadMemStats` | {stats} |");
        println!("| Go's `metrics.Read`, all metrics | {metrics} |");
    }
}

fn print(name: &str, mut read: impl FnMut()) {
    let time = |_| {
        let began = Instant::now();
        read();
        let time = began.elapsed();
        std::thread::sleep(PAUSE);
        time.as_nanos() as f64
    };
    let times: Vec<f64> = (0..number(1, READINGS).max(1)).map(time).collect();
    println!(
        "| {name} | {} |",
        cells([0.5, 0.9, 0.99].map(|q| quantile(&times, q)))
    );
}

/// Returns nanoseconds as cells of the table.
fn cells(quantiles: [f64; 3]) -> String {
    quantiles
        .map(|time| format!("{:.1}", time / 1000.0))
        .join(" | ")
}

/// Runs the same program in Go, and returns the cells of its two readings.
fn go(readings: usize) -> Option<[String; 2]> {
    let command = std::env::var_os("PLIMSOLL_GO").unwrap_or_else(|| "go".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bin/latency/latency.go");
    let mut go = Command::new(command);
    let output = go.arg("run").arg(source).arg(readings.to_string()).output();
    let Ok(output) = output else {
        println!("\nno Go: its row is missing");
        return None;
    };
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines = printed.lines().map(|line| {
        let numbers = line
            .split_whitespace()
            .map(|word| word.parse().expect("a time"));
        let quantiles: Vec<f64> = numbers.collect();
        cells(quantiles.try_into().expect("three quantiles"))
    });
    let lines = [lines.next(), lines.next()].map(|line| {
        line.unwrap_or_else(|| panic!("go: {}", String::from_utf8_lossy(&output.stderr)))
    });
    Some(lines)
}
