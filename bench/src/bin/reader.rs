//! Measures how long `heap_stats()` takes, and whether it delays other threads.
//!
//! `reader [CALLS]`, 20,000 calls in each situation by default, or as many as fit into 20 seconds.
//! Each situation runs in a separate process, with the default ledger and with the per-thread
//! ledger. Wall time includes the time for which other threads and processes used the processor;
//! the reader's CPU time does not.
//!
//! Then a thread times each allocation together with its free, back to back by the time stamp
//! counter, so that no delay is missed. It does so alone, beside a spinning thread, and beside a
//! thread that reads without pause, each on another processor, in turn. All three include delays by
//! the system and the machine; only the third includes the reader. An interval in which the thread
//! lost its processor is counted separately.

use std::hint::black_box;
use std::time::{Duration, Instant};

use plimsoll_bench::crew::Crew;
use plimsoll_bench::load::{Load, Work};
use plimsoll_bench::pairs::Random;
use plimsoll_bench::quantiles::quantile;
use plimsoll_bench::{children, clock, machine};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const LEDGERS: [&str; 2] = ["auto", "per-thread"];

const CALLS: usize = 20_000;

/// The mean time of a call above which the number of calls is reduced.
const LONGEST: Duration = Duration::from_millis(1);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| {
        arguments
            .get(at)
            .map_or(default, |number| number.parse().expect("a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("calls") => println!("{}", SITUATIONS[number(1, 0)].measure(number(2, CALLS))),
        Some("delays") => delays(number(1, CALLS)),
        _ => all(number(0, CALLS)),
    }
}

fn all(calls: usize) {
    println!("{}\n", machine::describe());
    println!("microseconds of a call of heap_stats()");
    println!(
        "| ledger | beside it | calls | cpu p50 | cpu p99 | wall p50 | wall p99 | wall max | target |\n|---|---|---|---|---|---|---|---|---|"
    );
    let calls = calls.to_string();
    for ledger in LEDGERS {
        for situation in 0..SITUATIONS.len() {
            let arguments = ["calls", &situation.to_string(), &calls];
            let row = children::again(&format!("ledger={ledger}"), &arguments);
            println!("| {ledger} {}", row.trim());
        }
    }
    println!(
        "\nan allocation and its free, in microseconds; target: no delay above 20 by the reader"
    );
    println!(
        "| ledger | beside it | pairs | p50 | p99.9 | p99.99 | max | max without switch | above 20 | of those with a switch | readings |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    for ledger in LEDGERS {
        let rows = children::again(&format!("ledger={ledger}"), &["delays", &calls]);
        for row in rows.lines() {
            println!("| {ledger} {row}");
        }
    }
}

/// The work of the other threads while one reads.
struct Situation {
    name: &'static str,
    busy: usize,
    work: Work,
    idle: usize,
    target: &'static str,
}

impl Situation {
    const fn busy(name: &'static str, busy: usize, work: Work, target: &'static str) -> Self {
        Self {
            name,
            busy,
            work,
            idle: 0,
            target,
        }
    }
}

const SITUATIONS: [Situation; 6] = [
    Situation::busy("no thread", 0, Work::Spin, ""),
    Situation::busy("2 threads, tight", 2, Work::Tight, "wall p50 < 10"),
    Situation::busy(
        "2 threads, random sizes",
        2,
        Work::RandomSizes,
        "wall p50 < 10",
    ),
    Situation::busy("64 threads, tight", 64, Work::Tight, "cpu p99 < 200"),
    Situation::busy(
        "64 threads, random sizes",
        64,
        Work::RandomSizes,
        "cpu p99 < 200",
    ),
    Situation {
        name: "idle threads",
        busy: 0,
        work: Work::Spin,
        idle: 10_000,
        target: "wall p50 and p99 < 200",
    },
];

impl Situation {
    fn measure(&self, calls: usize) -> String {
        let crew = Crew::start(self.idle, || drop(black_box(Box::new(1))));
        crew.turn();
        let load = Load::start(self.busy, self.work);
        let (began, longest) = (Instant::now(), LONGEST * calls as u32);
        let (mut cpu, mut wall) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
        while cpu.len() < calls && (began.elapsed() < longest || cpu.is_empty()) {
            let (cpu_before, wall_before) = (clock::thread(), clock::wall());
            black_box(plimsoll::heap_stats());
            let wall_after = clock::wall();
            cpu.push((clock::thread() - cpu_before) as f64 / 1000.0);
            wall.push((wall_after - wall_before) as f64 / 1000.0);
        }
        drop(load);
        let name = match self.idle {
            0 => self.name.into(),
            _ => format!("{} {}", crew.size(), self.name),
        };
        let [cpu_middle, cpu_p99] = [0.5, 0.99].map(|q| quantile(&mut cpu, q));
        let [middle, p99, max] = [0.5, 0.99, 1.0].map(|q| quantile(&mut wall, q));
        format!(
            "| {name} | {} | {cpu_middle:.1} | {cpu_p99:.1} | {middle:.1} | {p99:.1} | {max:.1} | {} |",
            cpu.len(),
            self.target
        )
    }
}

/// The number of rounds, each with all three neighbours in turn.
const ROUNDS: usize = 4;

/// The number of pairs in a round, per requested call.
const PAIRS: usize = 250;

fn delays(calls: usize) {
    let processors = processors();
    if let [first, second, ..] = processors[..] {
        // This thread is pinned to the second processor; the neighbour inherits that.
        pin(second);
        let neighbours = [Neighbour::None, Neighbour::Spinner, Neighbour::Reader];
        let mut times = neighbours.map(|_| Times::new());
        let mut readings = 0;
        for _ in 0..ROUNDS {
            for (neighbour, times) in neighbours.iter().zip(&mut times) {
                readings += neighbour.beside(|| {
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            pin(first);
                            time_pairs(calls * PAIRS, times);
                        });
                    });
                });
            }
        }
        let ticks = clock::ticks_per_microsecond();
        for (neighbour, times) in neighbours.iter().zip(&mut times) {
            let readings = match neighbour {
                Neighbour::Reader => readings.to_string(),
                _ => String::new(),
            };
            println!("{} {readings} |", times.row(neighbour.name(), ticks));
        }
    } else {
        println!("| a second processor is needed |");
    }
}

#[derive(Clone, Copy)]
enum Neighbour {
    None,
    Spinner,
    Reader,
}

impl Neighbour {
    fn name(self) -> &'static str {
        match self {
            Self::None => "no thread",
            Self::Spinner => "a spinning thread",
            Self::Reader => "a reader without pause",
        }
    }

    /// Runs `work` beside the neighbour; returns the number of readings meanwhile.
    fn beside(self, work: impl FnOnce()) -> usize {
        use std::sync::atomic::{AtomicBool, Ordering};
        if let Self::None = self {
            work();
            return 0;
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let neighbour = scope.spawn(|| {
                let mut readings = 0;
                while !over.load(Ordering::Relaxed) {
                    match self {
                        Self::Reader => {
                            black_box(plimsoll::heap_stats());
                            readings += 1;
                        }
                        _ => std::hint::spin_loop(),
                    }
                }
                readings
            });
            work();
            over.store(true, Ordering::Relaxed);
            neighbour.join().expect("no thread panics")
        })
    }
}

/// The distribution of the times of pairs.
struct Times {
    /// The number of pairs, by ticks.
    counts: Vec<u32>,
    /// The times above the range of `counts`, in ticks.
    long: Vec<u64>,
    pairs: u64,
    /// The longest time, in ticks, in which the thread kept its processor.
    longest_kept: u64,
    above: u64,
    above_with_switch: u64,
}

const LIMIT_MICROSECONDS: f64 = 20.0;

impl Times {
    fn new() -> Self {
        Self {
            counts: vec![0; 1 << 16],
            long: Vec::with_capacity(1 << 20),
            pairs: 0,
            longest_kept: 0,
            above: 0,
            above_with_switch: 0,
        }
    }

    /// Returns a quantile in ticks.
    fn quantile(&mut self, q: f64) -> f64 {
        let rank = (self.pairs - 1) as f64 * q;
        let mut below = 0.0;
        for (ticks, &count) in self.counts.iter().enumerate() {
            below += f64::from(count);
            if below > rank {
                return ticks as f64;
            }
        }
        self.long.sort_unstable();
        let place = (rank - below) as usize;
        self.long[place.min(self.long.len() - 1)] as f64
    }

    fn row(&mut self, name: &str, ticks: f64) -> String {
        let [middle, p999, p9999, max] =
            [0.5, 0.999, 0.9999, 1.0].map(|q| self.quantile(q) / ticks);
        format!(
            "| {name} | {} | {middle:.3} | {p999:.3} | {p9999:.2} | {max:.1} | {:.1} | {} | {} |",
            self.pairs,
            self.longest_kept as f64 / ticks,
            self.above,
            self.above_with_switch
        )
    }
}

fn time_pairs(pairs: usize, times: &mut Times) {
    let limit = (clock::ticks_per_microsecond() * LIMIT_MICROSECONDS) as u64;
    // Above this time, the thread checks whether it lost its processor.
    let asked = limit / 4;
    let mut random = Random::new(1);
    let mut switches = switches();
    let mut before = clock::ticks();
    for _ in 0..pairs {
        let (size, _) = random.size_and_place(1);
        drop(black_box(Vec::<u8>::with_capacity(size)));
        let now = clock::ticks();
        let took = now.saturating_sub(before);
        before = now;
        match times.counts.get_mut(took as usize) {
            Some(count) => *count += 1,
            None => times.long.push(took),
        }
        if took >= asked {
            let switches_now = self::switches();
            let switched = switches_now != switches;
            switches = switches_now;
            if !switched {
                times.longest_kept = times.longest_kept.max(took);
            }
            times.above += u64::from(took > limit);
            times.above_with_switch += u64::from(took > limit && switched);
            before = clock::ticks();
        } else {
            times.longest_kept = times.longest_kept.max(took);
        }
    }
    times.pairs += pairs as u64;
}

/// Returns how often the calling thread has lost its processor.
fn switches() -> i64 {
    // SAFETY: all zeros is a valid value; the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nivcsw + usage.ru_nvcsw
    }
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
