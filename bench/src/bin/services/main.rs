//! Measures the cost of Plimsoll inside services at a fixed load.
//!
//! `services [ROUNDS [SECONDS]]`: by default 5 rounds, and 20 seconds of load for each variant. Builds the services of
//! `bench/services` first: the same source with the feature `on`, and without it, which is without Plimsoll. One
//! round keeps earlier builds, whose times then mean nothing. Entries of the lock file are those for this system.
//!
//! In each round, each variant of each service starts, answers a quarter of the load as a warm-up, and then the load. Eight
//! connections send requests at fixed times. A latency counts from the scheduled time, so it contains the client's wake-up.
//! CPU time is the process's. With everything on, two pages are read at the start and each 10 seconds.
//! *Switched off* ends Plimsoll after the warm-up. Then the service is idle as long, at most 20 seconds; a wake-up is a
//! voluntary context switch of any thread. Memory and threads are those at the end.

mod builds;
mod load;
mod process;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use load::Service;
use process::Process;

use plimsoll_bench::arguments::number;
use plimsoll_bench::quantiles::{median, quantile};
use plimsoll_bench::rounds::{order, ratio};
use plimsoll_bench::{machine, table};

const SERVICES: [Service; 3] = [
    Service("web", 2000, get_file, ["HTTP/1.1 200 ", END]),
    Service("keys", 4000, use_key, ["OK", "\n"]),
    Service("query", 2000, ask_region, ["item ", "\n"]),
];

/// The number of files that `web` serves, and the end of each.
const FILES: u32 = 100;
const END: &str = "the end\n";

fn get_file(_: u32, number: u32) -> String {
    format!(
        "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        number % FILES
    )
}

fn use_key(connection: u32, number: u32) -> String {
    let key = number / 10 % 1000;
    match number % 10 {
        0 => format!("SET {connection}:{key} {number:0100}\n"),
        _ => format!("GET {connection}:{key}\n"),
    }
}

fn ask_region(connection: u32, number: u32) -> String {
    format!("{}\n", (connection * 131 + number) % 1000)
}

/// The settings of everything; the port of the pages follows.
const ALL: &str = "mutex_fraction=100,block_rate=10us,cpu_rate=19,long_poll=10ms,http=";

/// Each variant with its settings.
const VARIANTS: [(&str, &str); 5] = [
    ("without", ""),
    ("off", "off"),
    ("default", ""),
    ("all on", ALL),
    (SWITCHED_OFF, ""),
];
const SWITCHED_OFF: &str = "switched off";

/// The figures of a run and of a build, whether a change is a ratio, and the largest change of each variant.
const OF_RUNS: [(&str, bool, [f64; 4]); 6] = [
    ("CPU of a request, µs", true, [1.01, 1.02, 1.04, 1.01]),
    ("median latency, µs", true, [NONE; 4]),
    ("p99 latency, µs", true, [NONE; 4]),
    ("memory, MiB", true, [NONE; 4]),
    ("threads", false, [NONE; 4]),
    ("idle wake-ups a minute", false, [0.0, 60.0, NONE, 0.0]),
];
const OF_BUILDS: [(&str, bool, [f64; 1]); 4] = [
    ("stripped program, MB", false, [2.0]),
    ("entries of the lock file", false, [30.0]),
    ("cold build, s", false, [NONE]),
    ("build after a change, s", false, [NONE]),
];
const NONE: f64 = f64::INFINITY;

fn main() {
    let (rounds, seconds) = (number(1, 5).max(1), number(2, 20).max(1) as u32);
    let build = |name| [false, true].map(|is_with| builds::build(name, is_with, rounds > 1));
    let built = SERVICES.map(|Service(name, ..)| build(name));
    machine::print();
    let files = std::env::temp_dir().join(format!("plimsoll-services-{}", std::process::id()));
    std::fs::create_dir_all(&files).expect("a directory can be made");
    for file in 0..FILES {
        let text = "0123456789".repeat(100 + 7 * file as usize) + END;
        std::fs::write(files.join(file.to_string()), text).expect("there is space");
    }
    let mut runs = [const { [const { Vec::new() }; VARIANTS.len()] }; SERVICES.len()];
    for round in 0..rounds {
        for ((service, built), runs) in SERVICES.iter().zip(&built).zip(&mut runs) {
            for variant in order(round, VARIANTS.len()) {
                let (program, _) = &built[usize::from(variant > 0)];
                runs[variant].push(run(service, variant, program, &files, seconds));
            }
        }
    }
    let _ = std::fs::remove_dir_all(files);
    println!("medians of {rounds} rounds of {seconds} s, and ratios or differences to *without*");
    println!("(web: static-web-server, mimalloc; keys: tokio, System; query: SQLite, jemalloc)");
    let names = VARIANTS.map(|(name, _)| name).join(" | ");
    table::head(&format!("| service | {names} |"));
    for (Service(name, rate, ..), runs) in SERVICES.iter().zip(&runs) {
        print(&format!("{name}, {rate}/s"), runs, OF_RUNS);
    }
    println!("\nbuilds, once, profile `release`");
    table::head("| service | without | with |");
    for (Service(name, ..), built) in SERVICES.iter().zip(built) {
        print(name, &built.map(|(_, figures)| vec![figures]), OF_BUILDS);
    }
}

/// Prints a row for each figure, from the rounds of each variant. The first variant is without Plimsoll.
fn print<const FIGURES: usize, const OTHERS: usize>(
    service: &str,
    variants: &[Vec<[f64; FIGURES]>],
    figures: [(&str, bool, [f64; OTHERS]); FIGURES],
) {
    for (at, (name, is_ratio, aims)) in figures.into_iter().enumerate() {
        let of = |rounds: &Vec<[f64; FIGURES]>| rounds.iter().map(|round| round[at]).collect();
        let [without, others] = [&variants[..1], &variants[1..]];
        let without: Vec<f64> = of(&without[0]);
        print!("| {service}: {name} | {:.1} |", median(&without));
        for (rounds, aim) in others.iter().map(of).zip(aims) {
            let (figure, digits) = (median(&rounds), if is_ratio { 3 } else { 1 });
            let change = match is_ratio {
                true => ratio(&rounds, &without),
                false => figure - median(&without),
            };
            let aim = match (aim < NONE, change > aim) {
                (false, _) => String::new(),
                (true, false) => format!(", aim {aim}"),
                (true, true) => format!(", aim {aim}: **missed**"),
            };
            print!(" {figure:.1} ({change:.digits$}{aim}) |");
        }
        println!();
    }
}

/// Measures a variant of a service, and returns its figures.
fn run(service: &Service, variant: usize, program: &Path, files: &Path, seconds: u32) -> [f64; 6] {
    let (name, settings) = VARIANTS[variant];
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port is free"));
    let [port, pages] = listeners.map(|one| one.local_addr().expect("it is bound").port());
    let pages = (settings == ALL).then_some(pages);
    let all_settings = pages.map_or(settings.into(), |port| format!("{settings}{port}"));
    let mut process = Process::start(program, port, &all_settings, files);
    // A variant without Plimsoll, or with other settings than stated, fails.
    let (is_on, is_counted) = (variant > 0 && settings != "off", variant > 0);
    assert_eq!(process.state(), format!("{is_on} {is_counted}"), "{name}");
    service.load(port, seconds.div_ceil(4), None);
    if name == SWITCHED_OFF {
        process.switch_off();
        assert_eq!(process.state(), "false true", "{name}");
    }
    let before = process.cpu();
    let times = service.load(port, seconds, pages);
    let cpu = (process.cpu() - before) as f64 / 1000.0;
    assert!(cpu > 0.0 && !times.is_empty(), "{name} did nothing");
    // The ends of connections are not idle time.
    std::thread::sleep(Duration::from_secs(1));
    let idle = Duration::from_secs(seconds.min(20).into());
    let wake_ups = process.switches_in(idle) * 60.0 / idle.as_secs_f64();
    let [memory, threads] = ["VmRSS:", "Threads:"].map(|field| process.status(field));
    let [middle, p99] = [0.5, 0.99].map(|q| quantile(&times, q));
    let cpu = cpu / times.len() as f64;
    [cpu, middle, p99, memory / 1024.0, threads, wake_ups]
}
