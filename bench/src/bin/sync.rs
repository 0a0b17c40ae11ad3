//! Counts the instructions of uncontended primitives of `plimsoll::sync`.
//!
//! Acquires and releases each primitive, the wrapped one and Plimsoll's, with the profiles off and
//! on, under callgrind.
//!
//! `sync PRIMITIVE wrapped|off|on PAIRS` is one such process.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plimsoll::profile;
use plimsoll::sync::lock_api::{RawMutex, RawRwLock};
use plimsoll_bench::arguments::number;
use plimsoll_bench::{callgrind, children, machine, table};

/// Functions that acquire and release this many times: the wrapped primitive, and Plimsoll's.
type Works = [fn(u64); 2];

/// The measured primitives, by name.
const PRIMITIVES: [(&str, Works); 15] = [
    ("std Mutex", [std_threads::mutex, threads::mutex]),
    ("std RwLock, read", [std_threads::read, threads::read]),
    ("std RwLock, write", [std_threads::write, threads::write]),
    ("std channel", [std_threads::channel, threads::channel]),
    ("std Once, done", [std_threads::once, threads::once]),
    ("parking_lot Mutex", [parking::mutex, raw::mutex]),
    ("parking_lot RwLock, read", [parking::read, raw::read]),
    ("parking_lot RwLock, write", [parking::write, raw::write]),
    ("tokio Mutex", [tokio_tasks::mutex, tasks::mutex]),
    ("tokio RwLock, read", [tokio_tasks::read, tasks::read]),
    ("tokio RwLock, write", [tokio_tasks::write, tasks::write]),
    (
        "tokio Semaphore",
        [tokio_tasks::semaphore, tasks::semaphore],
    ),
    ("tokio channel", [tokio_tasks::channel, tasks::channel]),
    ("tokio oneshot", [tokio_tasks::oneshot, tasks::oneshot]),
    ("tokio Notify", [tokio_tasks::notify, tasks::notify]),
];

/// Pairs of the two counted runs.
const COUNTED: [u64; 2] = [100_000, 300_000];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let [Some(primitive), Some(way)] = [arguments.next(), arguments.next()] {
        return run(&primitive, &way, number(3, 0) as u64);
    }
    machine::print();
    println!("instructions of a pair, by callgrind (aim, off: 3 more, 10 over tokio)");
    table::head("| primitive | wrapped | plimsoll, off | added | plimsoll, on | added |");
    for (name, _) in PRIMITIVES {
        let [wrapped, off, on] = ["wrapped", "off", "on"]
            .map(|way| callgrind::each(&children::this(), "", &[name, way], COUNTED));
        println!(
            "| {name} | {wrapped:.1} | {off:.1} | {:+.1} | {on:.1} | {:+.1} |",
            off - wrapped,
            on - wrapped
        );
    }
}

fn run(primitive: &str, way: &str, pairs: u64) {
    let mut primitives = PRIMITIVES.iter();
    let found = primitives.find(|(name, _)| *name == primitive);
    let (_, [wrapped, ours]) = found.expect("a primitive of that name");
    if way == "on" {
        profile::set_block_rate(std::time::Duration::from_nanos(1));
        profile::set_mutex_fraction(1);
    }
    match way {
        "wrapped" => wrapped(pairs),
        _ => ours(pairs),
    }
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

/// The same for the standard library's primitives.
macro_rules! of_threads {
    ($module:ident, $($sync:tt)*) => {
        mod $module {
            use $($sync)*::{Mutex, Once, RwLock, mpsc};

            use super::*;

            work!(mutex, Mutex::new(0u64), |mutex| {
                *mutex.lock().expect("not poisoned") += 1;
            });
            work!(read, RwLock::new(0u64), |lock| {
                black_box(*lock.read().expect("not poisoned"));
            });
            work!(write, RwLock::new(0u64), |lock| {
                *lock.write().expect("not poisoned") += 1;
            });
            work!(channel, mpsc::channel::<u64>(), |channel| {
                channel.0.send(1).expect("there is a receiver");
                black_box(channel.1.recv()).expect("there is a message");
            });
            work!(once, Once::new(), |once| once.call_once(|| ()));
        }
    };
}

/// The same for primitives of parking_lot.
macro_rules! of_parking_lot {
    ($module:ident, $mutex:ty, $lock:ty) => {
        mod $module {
            use super::*;

            work!(mutex, <$mutex>::new(0), |mutex| *mutex.lock() += 1);
            work!(read, <$lock>::new(0), |lock| black_box(*lock.read()));
            work!(write, <$lock>::new(0), |lock| *lock.write() += 1);
        }
    };
}

/// The same for the primitives of tasks.
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
        }
    };
}

of_threads!(std_threads, ::std::sync);
of_threads!(threads, plimsoll::sync);
of_parking_lot!(parking, parking_lot::Mutex<u64>, parking_lot::RwLock<u64>);
of_parking_lot!(
    raw,
    lock_api::Mutex<RawMutex<parking_lot::RawMutex>, u64>,
    lock_api::RwLock<RawRwLock<parking_lot::RawRwLock>, u64>
);
of_tasks!(tokio_tasks, ::tokio::sync);
of_tasks!(tasks, plimsoll::sync::tokio);

/// Returns the output of a future that does not wait.
#[inline(always)]
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is there"),
    }
}
