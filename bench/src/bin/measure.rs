//! Measures the cost of `plimsoll::measure`.
//!
//! `measure [ROUNDS]`, 15 rounds by default. Prints the median and the largest round's CPU time in
//! nanoseconds: of a measurement of an empty closure, of the guard, of a pair of an allocation and its
//! free beside no measurement, and of a pair within one. Each round takes 200,000 of them.

use std::hint::black_box;

use plimsoll::measure;
use plimsoll::measure::Measurement;
use plimsoll_bench::quantiles::median;
use plimsoll_bench::{clock, machine};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const REPETITIONS: u64 = 200_000;

fn pair() {
    drop(black_box(Box::new(1_u64)));
}

fn main() {
    let rounds = std::env::args().nth(1);
    let rounds: usize = rounds.map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    println!("{}\n", machine::describe());
    println!("| nanoseconds of CPU time | median | largest | target |\n|---|---|---|---|");
    let repeat = |work: &dyn Fn()| (0..REPETITIONS).for_each(|_| work());
    let works: [(&str, &str, &dyn Fn()); 4] = [
        ("an empty closure", "100", &|| {
            repeat(&|| drop(black_box(measure(|| ()))));
        }),
        ("an empty section by the guard", "-", &|| {
            repeat(&|| drop(black_box(Measurement::start().finish())));
        }),
        ("a pair, not measured", "-", &|| repeat(&pair)),
        ("a pair within a measurement", "-", &|| {
            let measured = measure(|| repeat(&pair));
            assert_eq!(measured.allocations, REPETITIONS);
        }),
    ];
    for (name, target, work) in works {
        let round = |_| {
            let start = clock::thread();
            work();
            (clock::thread() - start) as f64 / REPETITIONS as f64
        };
        let mut times: Vec<f64> = (0..rounds.max(1)).map(round).collect();
        let largest = times.iter().copied().fold(0.0, f64::max);
        println!(
            "| {name} | {:.1} | {largest:.1} | {target} |",
            median(&mut times)
        );
    }
}
