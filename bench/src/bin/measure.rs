//! Measures the cost of `plimsoll::measure`, and of accounts of tasks.
//!
//! `measure [ROUNDS]`, 15 rounds by default. Prints the median of the rounds' CPU time in nanoseconds:
//! of a measurement of an empty closure, of the guard, of a pair of an allocation and its
//! free beside no measurement, and of a pair within one. Each round takes 200,000 of them.
//!
//! Then the CPU time of a request of a service on tokio, in microseconds, in alternating rounds: each
//! request is a tracked task, without and with an account. It waits three times, parses a query of 30
//! fields into a map and formats an answer. Once the query comes by TCP
//! from another thread, whose CPU time does not count; once from memory. Last, the same for tasks that
//! only allocate.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::io::{Read, Write as _};

use plimsoll::measure;
use plimsoll::measure::Measurement;
use plimsoll::task::TrackExt;
use plimsoll_bench::arguments::number;
use plimsoll_bench::rounds::alternate;
use plimsoll_bench::{clock, machine, table};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

const REPETITIONS: u64 = 200_000;

fn pair() {
    drop(black_box(Box::new(1_u64)));
}

fn main() {
    let rounds = number(1, 15);
    machine::print();
    table::head("| nanoseconds of CPU time | median | target |");
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
        let [median] = alternate::<1>(rounds, |_| {
            let start = clock::thread();
            work();
            (clock::thread() - start) as f64 / REPETITIONS as f64
        })
        .medians();
        println!("| {name} | {median:.1} | {target} |");
    }
    accounts(rounds);
}

/// The number of requests of a round.
const REQUESTS: u64 = 4000;

/// Parses a query and formats an answer.
async fn request(query: &str) -> String {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    for part in query.split('&') {
        if fields.len() % 10 == 9 {
            tokio::task::yield_now().await;
        }
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        fields.insert(key.to_uppercase(), value.repeat(4));
    }
    let mut answer = String::new();
    for (key, value) in &fields {
        let sum = value.bytes().fold(0_u64, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        writeln!(answer, "{key}: {value} ({sum:x})").expect("it is written to memory");
    }
    answer
}

/// Allocates and frees 64 times.
async fn pairs(_: &'static str) -> usize {
    (0..64).for_each(|_| pair());
    64
}

fn accounts(rounds: usize) {
    let query: String = (0..30)
        .map(|at| format!("&field{at}=value{at}-of-a-query"))
        .collect();
    let query: &'static str = query[1..].to_owned().leak();
    let counted = runtime().block_on(async {
        let mut task = request(query).tracked();
        let account = task.account();
        drop(tokio::spawn(task).await.expect("it does not panic"));
        account.read()
    });
    println!("\nA request makes {} allocations.", counted.allocations);
    println!();
    table::head("| CPU time of a request, µs | tracked | with an account | ratio | target |");
    let by_tcp = |has_account| served(query, has_account);
    compare("a query by TCP", "1.05", rounds, by_tcp);
    compare("a query", "-", rounds, |has_account| {
        in_memory(|| request(query), has_account)
    });
    compare("64 pairs", "-", rounds, |has_account| {
        in_memory(|| pairs(query), has_account)
    });
}

/// Prints the medians of alternating rounds, whose function returns nanoseconds.
fn compare(name: &str, target: &str, rounds: usize, round: impl Fn(bool) -> u64) {
    let times = alternate::<2>(rounds, |variant| {
        round(variant == 1) as f64 / REQUESTS as f64 / 1000.0
    });
    let ([without, with], [_, ratio]) = (times.medians(), times.ratios());
    println!("| {name} | {without:.2} | {with:.2} | {ratio:.3} | {target} |");
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_io().build();
    runtime.expect("the system gives what a runtime needs")
}

/// Runs a task, and reads its account if it has one.
async fn run<F>(task: F, has_account: bool) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut task = task.tracked();
    let account = has_account.then(|| task.account());
    let output = tokio::spawn(task).await.expect("it does not panic");
    assert!(account.is_none_or(|account| account.read().frees > 0));
    output
}

fn in_memory<F>(make: impl Fn() -> F, has_account: bool) -> u64
where
    F: Future<Output: Send> + Send + 'static,
{
    let start = clock::thread();
    runtime().block_on(async {
        for _ in 0..REQUESTS {
            black_box(run(make(), has_account).await);
        }
    });
    clock::thread() - start
}

/// Answers queries on this thread that another one sends.
fn served(query: &'static str, has_account: bool) -> u64 {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let client = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            let mut answer = [0; 1 << 13];
            for _ in 0..REQUESTS {
                stream.write_all(query.as_bytes()).expect("it is open");
                let mut length = 0;
                while !answer[..length].ends_with(b"\n\n") {
                    length += stream.read(&mut answer[length..]).expect("it is open");
                }
            }
        });
        let (mut stream, _) = listener.accept().await.expect("a client comes");
        let start = clock::thread();
        for _ in 0..REQUESTS {
            let mut bytes = vec![0; query.len()];
            stream.read_exact(&mut bytes).await.expect("it is open");
            let received = String::from_utf8(bytes).expect("it is text");
            let task = async move { request(&received).await };
            let mut answer = run(task, has_account).await;
            answer.push('\n');
            stream
                .write_all(answer.as_bytes())
                .await
                .expect("it is open");
        }
        let time = clock::thread() - start;
        client.join().expect("it does not panic");
        time
    })
}
