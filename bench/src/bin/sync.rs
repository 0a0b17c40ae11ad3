//! Measures the cost of uncontended primitives of `plimsoll::sync`.
//!
//! Prints the sizes of the primitives for tasks, and of their futures. Acquires and releases each
//! primitive, the wrapped one and Plimsoll's, with the profiles off and on, in separate processes
//! in turn, and prints medians. Then counts instructions with callgrind, if it is installed. `sync
//! [ROUNDS]`, 15 rounds by default.
//!
//! `sync once PRIMITIVE wrapped|plimsoll off|on PAIRS` is one such process; it prints the CPU time
//! of a pair in nanoseconds.

use std::hint::black_box;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Poll, Waker};

use plimsoll::profile;
use plimsoll::sync::lock_api::{RawMutex, RawRwLock};
use plimsoll_bench::{clock, machine, quantiles::median};

/// Functions that acquire and release this many times: the wrapped primitive, and Plimsoll's.
type Works = [fn(u64); 2];

/// The measured primitives, by name.
const PRIMITIVES: [(&str, Works); 15] = [
    ("std Mutex", [std_mutex, mutex]),
    ("std RwLock, read", [std_read, read]),
    ("std RwLock, write", [std_write, write]),
    ("std channel, send and receive", [std_channel, channel]),
    ("std Once, done", [std_once, once]),
    ("parking_lot Mutex", [parking_lot_mutex, raw_mutex]),
    ("parking_lot RwLock, read", [parking_lot_read, raw_read]),
    ("parking_lot RwLock, write", [parking_lot_write, raw_write]),
    ("tokio Mutex", [wrapped::mutex, tasks::mutex]),
    ("tokio RwLock, read", [wrapped::read, tasks::read]),
    ("tokio RwLock, write", [wrapped::write, tasks::write]),
    ("tokio Semaphore", [wrapped::semaphore, tasks::semaphore]),
    (
        "tokio channel, send and receive",
        [wrapped::channel, tasks::channel],
    ),
    (
        "tokio oneshot, made and used",
        [wrapped::oneshot, tasks::oneshot],
    ),
    ("tokio Notify, notified", [wrapped::notify, tasks::notify]),
];

/// Pairs of a timed run, and of the two counted runs, whose difference excludes the start-up.
const TIMED: u64 = 5_000_000;
const COUNTED: [u64; 2] = [100_000, 300_000];

/// The index of the primitive (wrapped or Plimsoll's), and the mode of the profiles.
const VARIANTS: [(usize, &str); 4] = [(0, "off"), (1, "off"), (0, "on"), (1, "on")];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("once") => run(&arguments[1..]),
        rounds => compare(rounds.map_or(15, |rounds| rounds.parse().expect("a number of rounds"))),
    }
}

fn run(arguments: &[String]) {
    let [primitive, which, mode, pairs] = arguments else {
        panic!("once PRIMITIVE wrapped|plimsoll off|on PAIRS");
    };
    let (_, works) = PRIMITIVES
        .iter()
        .find(|(name, _)| name == primitive)
        .expect("a primitive of that name");
    let work = works[usize::from(which == "plimsoll")];
    let pairs: u64 = pairs.parse().expect("a number of pairs");
    if mode == "on" {
        profile::set_block_rate(std::time::Duration::from_nanos(1));
        profile::set_mutex_fraction(1);
    }
    work(pairs / 10);
    let start = clock::process();
    work(pairs);
    println!("{}", (clock::process() - start) as f64 / pairs as f64);
}

fn compare(rounds: usize) {
    println!("{}\n", machine::describe());
    print_sizes();
    println!("processor time of a pair in ns, medians of {rounds} alternating rounds");
    println!("| primitive | wrapped, off | plimsoll, off | wrapped, on | plimsoll, on |");
    println!("|---|---|---|---|---|");
    for (name, _) in PRIMITIVES {
        let mut times = VARIANTS.map(|_| Vec::new());
        for _ in 0..rounds {
            for (times, variant) in times.iter_mut().zip(VARIANTS) {
                let output = command(&[], name, variant, TIMED).output();
                let output = output.expect("this program can be run");
                let text = String::from_utf8_lossy(&output.stdout);
                times.push(text.trim().parse::<f64>().expect("a number"));
            }
        }
        let [wrapped, ours, wrapped_on, ours_on] = times.map(|mut times| median(&mut times));
        println!("| {name} | {wrapped:.2} | {ours:.2} | {wrapped_on:.2} | {ours_on:.2} |");
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("\nno valgrind: instructions are not counted");
        return;
    }
    println!(
        "\ninstructions of a pair, by callgrind over 200,000 pairs (aim, off: 3 more, 10 over tokio)"
    );
    println!("| primitive | wrapped | plimsoll, off | added | plimsoll, on | added |");
    println!("|---|---|---|---|---|---|");
    for (name, _) in PRIMITIVES {
        let [wrapped, off, _, on] = VARIANTS.map(|variant| instructions(name, variant));
        println!(
            "| {name} | {wrapped:.1} | {off:.1} | {:+.1} | {on:.1} | {:+.1} |",
            off - wrapped,
            on - wrapped
        );
    }
}

fn print_sizes() {
    println!("size in bytes");
    println!("| | tokio | plimsoll |");
    println!("|---|---|---|");
    for ((what, wrapped), (_, ours)) in wrapped::sizes().into_iter().zip(tasks::sizes()) {
        println!("| {what} | {wrapped} | {ours} |");
    }
    println!();
}

/// Returns the command that runs this program once, by `runner`.
fn command(runner: &[&str], name: &str, (which, mode): (usize, &str), pairs: u64) -> Command {
    let here = std::env::current_exe().expect("this program has a path");
    let mut command = match runner {
        [] => Command::new(&here),
        [runner, options @ ..] => {
            let mut command = Command::new(runner);
            command.args(options).arg(&here);
            command
        }
    };
    let which = ["wrapped", "plimsoll"][which];
    command.args(["once", name, which, mode, &pairs.to_string()]);
    command
}

fn instructions(name: &str, variant: (usize, &str)) -> f64 {
    let callgrind = [
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
    ];
    let [few, many] = COUNTED.map(|pairs| {
        let output = command(&callgrind, name, variant, pairs).output();
        let output = output.expect("valgrind can be run");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let collected = said
            .lines()
            .find_map(|line| line.split_once("Collected : "));
        let (_, number) = collected.unwrap_or_else(|| panic!("callgrind said {said}"));
        let number = number.trim().parse::<u64>();
        number.expect("a number of instructions") as f64
    });
    // Each run is preceded by a tenth of it, as a warm-up.
    (many - few) / ((COUNTED[1] - COUNTED[0]) as f64 * 1.1)
}

/// Runs one pair in a separate function. In a loop, the compiler would keep values in registers
/// that a real program computes each time.
#[inline(never)]
fn once_to<P>(primitive: &P, pair: impl Fn(&P)) {
    pair(primitive);
}

/// Defines a function with this name that runs the pair this many times.
macro_rules! work {
    ($name:ident, $primitive:expr, |$used:ident| $pair:expr) => {
        pub(crate) fn $name(pairs: u64) {
            let primitive = $primitive;
            for _ in 0..pairs {
                once_to(black_box(&primitive), |$used| {
                    $pair;
                });
            }
        }
    };
}

work!(std_mutex, std::sync::Mutex::new(0u64), |mutex| {
    *mutex.lock().expect("not poisoned") += 1;
});
work!(mutex, plimsoll::sync::Mutex::new(0u64), |mutex| {
    *mutex.lock().expect("not poisoned") += 1;
});
work!(std_read, std::sync::RwLock::new(0u64), |lock| {
    black_box(*lock.read().expect("not poisoned"));
});
work!(read, plimsoll::sync::RwLock::new(0u64), |lock| {
    black_box(*lock.read().expect("not poisoned"));
});
work!(std_write, std::sync::RwLock::new(0u64), |lock| {
    *lock.write().expect("not poisoned") += 1;
});
work!(write, plimsoll::sync::RwLock::new(0u64), |lock| {
    *lock.write().expect("not poisoned") += 1;
});
work!(std_channel, std::sync::mpsc::channel::<u64>(), |channel| {
    channel.0.send(1).expect("there is a receiver");
    black_box(channel.1.recv()).expect("there is a message");
});
work!(channel, plimsoll::sync::mpsc::channel::<u64>(), |channel| {
    channel.0.send(1).expect("there is a receiver");
    black_box(channel.1.recv()).expect("there is a message");
});
work!(std_once, std::sync::Once::new(), |once| {
    once.call_once(|| ());
});
work!(once, plimsoll::sync::Once::new(), |once| {
    once.call_once(|| ());
});
work!(parking_lot_mutex, parking_lot::Mutex::new(0u64), |mutex| {
    *mutex.lock() += 1;
});
work!(
    raw_mutex,
    lock_api::Mutex::<RawMutex<parking_lot::RawMutex>, u64>::new(0),
    |mutex| *mutex.lock() += 1
);
work!(parking_lot_read, parking_lot::RwLock::new(0u64), |lock| {
    black_box(*lock.read());
});
work!(
    raw_read,
    lock_api::RwLock::<RawRwLock<parking_lot::RawRwLock>, u64>::new(0),
    |lock| {
        black_box(*lock.read());
    }
);
work!(parking_lot_write, parking_lot::RwLock::new(0u64), |lock| {
    *lock.write() += 1;
});
work!(
    raw_write,
    lock_api::RwLock::<RawRwLock<parking_lot::RawRwLock>, u64>::new(0),
    |lock| *lock.write() += 1
);

/// The same for the primitives of tasks, and a function for their sizes.
macro_rules! of_tasks {
    ($module:ident, $($sync:tt)*) => {
        mod $module {
            use $($sync)*::{Mutex, Notify, RwLock, Semaphore, mpsc, oneshot as once};

            use super::*;

            work!(mutex, Mutex::new(0u64), |mutex| *at_once(mutex.lock()) += 1);
            work!(read, RwLock::new(0u64), |lock| black_box(*at_once(lock.read())));
            work!(write, RwLock::new(0u64), |lock| *at_once(lock.write()) += 1);
            work!(semaphore, Semaphore::new(1), |semaphore| {
                drop(at_once(semaphore.acquire()).expect("it is open"));
            });
            work!(notify, Notify::new(), |notify| {
                notify.notify_one();
                at_once(notify.notified());
            });
            work!(oneshot, (), |_nothing| {
                let (sender, receiver) = once::channel();
                sender.send(1u64).expect("there is a receiver");
                black_box(at_once(receiver)).expect("there is a message");
            });

            pub(crate) fn channel(pairs: u64) {
                let (sender, mut receiver) = mpsc::channel::<u64>(16);
                for _ in 0..pairs {
                    let channel = black_box((&sender, &mut receiver));
                    once_to_channel(channel.0, channel.1);
                }
            }

            #[inline(never)]
            fn once_to_channel(sender: &mpsc::Sender<u64>, receiver: &mut mpsc::Receiver<u64>) {
                at_once(sender.send(1)).expect("there is a receiver");
                black_box(at_once(receiver.recv())).expect("there is a message");
            }

            pub(crate) fn sizes() -> Vec<(&'static str, usize)> {
                let mutex = Mutex::new(0u64);
                let lock = RwLock::new(0u64);
                let semaphore = Semaphore::new(1);
                let notify = Notify::new();
                let (sender, mut receiver) = mpsc::channel(1);
                let (_, once) = once::channel::<u64>();
                vec![
                    ("`Mutex<u64>`", size_of_val(&mutex)),
                    ("its guard", size_of_val(&at_once(mutex.lock()))),
                    ("`Mutex::lock()`", size_of_val(&mutex.lock())),
                    ("`RwLock<u64>`", size_of_val(&lock)),
                    ("`RwLock::read()`", size_of_val(&lock.read())),
                    ("`RwLock::write()`", size_of_val(&lock.write())),
                    ("`Semaphore`", size_of_val(&semaphore)),
                    ("`Semaphore::acquire()`", size_of_val(&semaphore.acquire())),
                    ("`Notify`", size_of_val(&notify)),
                    ("`Notify::notified()`", size_of_val(&notify.notified())),
                    ("`mpsc::Sender<u64>`", size_of_val(&sender)),
                    ("`mpsc::Sender::send()`", size_of_val(&sender.send(1u64))),
                    ("`mpsc::Receiver::recv()`", size_of_val(&receiver.recv())),
                    ("`oneshot::Receiver<u64>`", size_of_val(&once)),
                ]
            }
        }
    };
}

of_tasks!(wrapped, ::tokio::sync);
of_tasks!(tasks, plimsoll::sync::tokio);

/// Returns the output of a future that does not wait.
#[inline(always)]
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is there"),
    }
}
