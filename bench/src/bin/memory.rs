//! Measures Plimsoll's memory, at the start and for each thread.
//!
//! `memory [ROUNDS]`, 7 rounds by default. Runs `memory_bare`, and itself with each ledger, in turn.
//! In each run, every thread allocates and frees, and then the statistics are read. This happens
//! twice, so that both generations of every shard are in use. Prints medians.

use plimsoll_bench::arguments::number;
use plimsoll_bench::children::{again, beside, numbers, run};
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{machine, quantiles::median, table, thread_memory};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Names of the variants; the first is without Plimsoll.
const VARIANTS: [&str; 3] = ["bare", "auto", "per-thread"];

fn main() {
    if std::env::args().nth(1).as_deref() == Some("child") {
        let _plimsoll = plimsoll::start();
        return thread_memory::measure(|| {
            plimsoll::heap_stats();
        });
    }
    machine::print();
    let mut of_thread = VARIANTS.map(|_| Vec::new());
    let at_start = alternate::<3>(number(1, 7), |variant| {
        let printed = match variant {
            0 => run(&beside("memory_bare"), "", &[]),
            _ => again(&format!("ledger={}", VARIANTS[variant]), &["child"]),
        };
        let figures = numbers(&printed);
        of_thread[variant].push(figures[1]);
        figures[0]
    });
    let at_start = at_start.medians();
    let of_thread = of_thread.map(|figures| median(&figures));

    println!("anonymous resident memory; target: for each thread at most 8192 bytes over bare");
    table::head("| ledger | at the start, KiB | over bare | for each thread, bytes | over bare |");
    for (name, (start, thread)) in VARIANTS.iter().zip(at_start.iter().zip(of_thread)) {
        println!(
            "| {name} | {start:.0} | {:+.0} | {thread:.0} | {:+.0} |",
            start - at_start[0],
            thread - of_thread[0]
        );
    }
}
