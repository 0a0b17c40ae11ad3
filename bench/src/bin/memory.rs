//! Measures Plimsoll's memory, at the start and for each thread.
//!
//! `memory [ROUNDS [THREADS]]`, 7 rounds of 1,000 threads by default. Runs `memory_bare`, and
//! itself with each ledger, in turn. In each run, every thread allocates and frees, and then the
//! statistics are read. This happens twice, so that both generations of every shard are in use.
//! Prints medians.

use plimsoll_bench::thread_memory::{self, Figures};
use plimsoll_bench::{children, machine, quantiles::median};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        arguments
            .get(at)
            .map_or(default, |number| number.parse().expect("a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("child") => child(number(1, 0)),
        _ => compare(number(0, 7), number(1, 1000)),
    }
}

/// Plimsoll's own figures in bytes: `mcache_sys`, `buck_hash_sys`, `other_sys`.
fn own() -> [u64; 3] {
    let stats = plimsoll::mem_stats();
    [stats.mcache_sys, stats.buck_hash_sys, stats.other_sys]
}

fn child(threads: usize) {
    let first = own();
    let _plimsoll = plimsoll::start();
    let started = own();
    let figures = thread_memory::measure(threads, || {
        plimsoll::heap_stats();
    });
    let last = own();
    figures.print();
    for values in [first, started, last] {
        println!("{} {} {}", values[0], values[1], values[2]);
    }
}

/// The figures of all runs of one variant.
#[derive(Default)]
struct Column {
    at_start: Vec<f64>,
    anonymous: Vec<f64>,
    resident: Vec<f64>,
    own: Vec<[[f64; 3]; 3]>,
    threads: u64,
}

impl Column {
    fn add(&mut self, text: &str) {
        let figures = Figures::parse(text);
        assert!(figures.threads > 0, "no thread was measured: {text}");
        self.threads = figures.threads;
        self.at_start.push(figures.at_start as f64);
        self.anonymous.push(figures.anonymous as f64);
        self.resident.push(figures.resident as f64);
        let rows: Vec<[f64; 3]> = text.lines().skip(1).map(row).collect();
        if let Ok(own) = rows.try_into() {
            self.own.push(own);
        }
    }

    fn own(&self, when: usize, what: usize) -> f64 {
        median(
            &mut self
                .own
                .iter()
                .map(|own| own[when][what])
                .collect::<Vec<_>>(),
        )
    }
}

fn row(line: &str) -> [f64; 3] {
    let numbers: Vec<f64> = line
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("three numbers")
}

const LEDGERS: [(&str, &str); 2] = [
    ("default", "ledger=auto"),
    ("per-thread", "ledger=per-thread"),
];

fn compare(rounds: usize, threads: usize) {
    println!("{}\n", machine::describe());
    let threads = threads.to_string();
    let mut bare = Column::default();
    let mut counted = LEDGERS.map(|_| Column::default());
    for _ in 0..rounds {
        bare.add(&children::sibling("memory_bare", "", &[&threads]));
        for ((_, settings), column) in LEDGERS.iter().zip(&mut counted) {
            column.add(&children::again(settings, &["child", &threads]));
        }
    }
    let (start, anonymous, resident) = (
        median(&mut bare.at_start),
        median(&mut bare.anonymous),
        median(&mut bare.resident),
    );

    println!("at the start, KiB; the reservations are accessible, not resident");
    println!(
        "| ledger | anonymous | over bare | shards | table | other | table and other after start |"
    );
    println!("|---|---|---|---|---|---|---|");
    println!("| bare | {start:.0} | | | | | |");
    for ((ledger, _), column) in LEDGERS.iter().zip(&mut counted) {
        let with = median(&mut column.at_start);
        let [shards, table, other] = [0, 1, 2].map(|what| column.own(0, what) / 1024.0);
        let [table_then, other_then] = [1, 2].map(|what| column.own(1, what) / 1024.0);
        println!(
            "| {ledger} | {with:.0} | {:+.0} | {shards:.0} | {table:.0} | {other:.0} | {table_then:.0} and {other_then:.0} |",
            with - start
        );
    }

    println!("\nfor each thread, bytes; target: over bare at most 8192");
    println!(
        "| ledger | threads | anonymous | over bare | resident | over bare | shards, table and other |"
    );
    println!("|---|---|---|---|---|---|---|");
    let each = |kib: f64, threads: u64| kib * 1024.0 / threads as f64;
    let bare_each = [each(anonymous, bare.threads), each(resident, bare.threads)];
    println!(
        "| bare | {} | {:.0} | | {:.0} | | |",
        bare.threads, bare_each[0], bare_each[1]
    );
    for ((ledger, _), column) in LEDGERS.iter().zip(&mut counted) {
        let anonymous = each(median(&mut column.anonymous), column.threads);
        let resident = each(median(&mut column.resident), column.threads);
        let grown = |what| column.own(2, what) - column.own(1, what);
        let own: f64 = [0, 1, 2].map(grown).iter().sum();
        println!(
            "| {ledger} | {} | {anonymous:.0} | {:+.0} | {resident:.0} | {:+.0} | {:.0} |",
            column.threads,
            anonymous - bare_each[0],
            resident - bare_each[1],
            own / column.threads as f64
        );
    }
}
