//! Measures how long `heap_stats()` takes, and whether it delays other threads.
//!
//! `reader [CALLS]`, 20,000 calls in each situation by default, or as many as fit into 20 seconds.
//! Each situation runs in a separate process, with the default ledger and with the per-thread
//! ledger. Wall time includes the time for which other threads and processes used the processor;
//! the reader's CPU time does not.
//!
//! Then a thread times each allocation together with its free, back to back by the time stamp
//! counter, so that no delay is missed. It does so alone, and beside a thread that reads without
//! pause on another processor, in turn. Both include delays by the system and the machine; only the
//! second includes the reader.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll_bench::arguments::number;
use plimsoll_bench::calls::{Times, cells};
use plimsoll_bench::crew::Crew;
use plimsoll_bench::load::{Load, Work};
use plimsoll_bench::pairs::Random;
use plimsoll_bench::{children, clock, machine, table};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const LEDGERS: [&str; 2] = ["auto", "per-thread"];

const CALLS: usize = 20_000;

/// The mean time of a call above which the number of calls is reduced.
const LONGEST: Duration = Duration::from_millis(1);

/// The other threads while one reads: busy ones with their work, idle ones, and the target.
const SITUATIONS: [(usize, Work, usize, &str); 5] = [
    (2, Work::Tight, 0, "wall p50 < 10"),
    (2, Work::RandomSizes, 0, "wall p50 < 10"),
    (64, Work::Tight, 0, "cpu p99 < 200"),
    (64, Work::RandomSizes, 0, "cpu p99 < 200"),
    (0, Work::Tight, 10_000, "wall p50 and p99 < 200"),
];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("calls") => calls(number(2, 0), number(3, CALLS)),
        Some("delays") => delays(number(2, CALLS)),
        _ => all(number(1, CALLS)),
    }
}

fn all(calls: usize) {
    machine::print();
    println!("microseconds of a call of heap_stats()");
    table::head("| ledger | beside it | cpu p50 | cpu p99 | wall p50 | wall p99 | target |");
    let calls = calls.to_string();
    for ledger in LEDGERS {
        for situation in 0..SITUATIONS.len() {
            let arguments = ["calls", &situation.to_string(), &calls];
            let row = children::again(&format!("ledger={ledger}"), &arguments);
            print!("| {ledger} {row}");
        }
    }
    println!(
        "\nan allocation and its free, in microseconds; target: no delay above 20 by the reader"
    );
    table::head("| beside it | p99.9 | max without switch |");
    print!("{}", children::again("", &["delays", &calls]));
}

fn calls(situation: usize, calls: usize) {
    let (busy, work, idle, target) = SITUATIONS[situation];
    let crew = Crew::start(idle, || drop(black_box(Box::new(1))));
    crew.turn();
    let load = Load::start(busy, work);
    let times = Times::measure(calls, LONGEST, || {
        black_box(plimsoll::heap_stats());
    });
    drop(load);
    let name = match busy {
        0 => format!("{} idle threads", crew.size()),
        _ => format!("{busy} threads, {work:?}"),
    };
    let [cpu, wall] = [cells(&times.cpu), cells(&times.wall)];
    println!("| {name} | {cpu} | {wall} | {target} |");
}

/// The number of rounds, each without and with a reader.
const ROUNDS: usize = 4;

/// The number of pairs in a round, per requested call.
const PAIRS: usize = 250;

fn delays(calls: usize) {
    let [first, second, ..] = processors()[..] else {
        return println!("| a second processor is needed |");
    };
    // This thread is pinned to the second processor; the reader inherits that.
    pin(second);
    let names = ["no thread", "a reader without pause"];
    let mut times = names.map(|_| Delays::new());
    let measure = |times: &mut Delays| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(first);
                time_pairs(calls * PAIRS, times);
            });
        });
    };
    for _ in 0..ROUNDS {
        measure(&mut times[0]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    black_box(plimsoll::heap_stats());
                }
            });
            measure(&mut times[1]);
            over.store(true, Ordering::Relaxed);
        });
    }
    let ticks = clock::ticks_per_microsecond();
    for (name, times) in names.iter().zip(&times) {
        println!(
            "| {name} | {:.3} | {:.1} |",
            times.p999() as f64 / ticks,
            times.longest_kept as f64 / ticks
        );
    }
}

/// The distribution of the times of pairs.
struct Delays {
    /// The number of pairs, by ticks; those of more ticks are not listed.
    counts: Vec<u32>,
    pairs: u64,
    /// The longest time, in ticks, in which the thread kept its processor.
    longest_kept: u64,
}

impl Delays {
    fn new() -> Self {
        Self {
            counts: vec![0; 1 << 16],
            pairs: 0,
            longest_kept: 0,
        }
    }

    /// Returns the time in ticks below which 99.9 % of the pairs are.
    fn p999(&self) -> usize {
        let rank = (self.pairs - 1) as f64 * 0.999;
        let mut below = 0.0;
        let found = self.counts.iter().position(|&count| {
            below += f64::from(count);
            below > rank
        });
        found.unwrap_or(self.counts.len())
    }
}

fn time_pairs(pairs: usize, times: &mut Delays) {
    // Above this time, 5 microseconds, the thread checks whether it lost its processor.
    let asked = (clock::ticks_per_microsecond() * 5.0) as u64;
    let mut random = Random::new(1);
    let mut switches = switches();
    let mut before = clock::ticks();
    for _ in 0..pairs {
        let (size, _) = random.size_and_place(1);
        drop(black_box(Vec::<u8>::with_capacity(size)));
        let now = clock::ticks();
        let took = now.saturating_sub(before);
        before = now;
        if let Some(count) = times.counts.get_mut(took as usize) {
            *count += 1;
        }
        if took >= asked {
            let switches_now = self::switches();
            let switched = switches_now != switches;
            switches = switches_now;
            if !switched {
                times.longest_kept = times.longest_kept.max(took);
            }
            before = clock::ticks();
        } else {
            times.longest_kept = times.longest_kept.max(took);
        }
    }
    times.pairs += pairs as u64;
}

/// Returns how often the calling thread has lost its processor.
fn switches() -> i64 {
    let usage = clock::usage(libc::RUSAGE_THREAD);
    usage.ru_nivcsw + usage.ru_nvcsw
}

/// Returns the processors on which this process may run.
fn processors() -> Vec<usize> {
    // SAFETY: all zeros is the empty set; the call fills it, and positions are within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        let all = 0..libc::CPU_SETSIZE as usize;
        all.filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}

/// Pins the calling thread, and threads that it starts later, to one processor.
fn pin(cpu: usize) {
    // SAFETY: all zeros is the empty set; `cpu` is a position within it.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    assert_eq!(failed, 0, "a thread may choose among its processors");
}
