//! The example `every_await` of `plimsoll-awaits` with tracked tasks, so that both ways to find what a task awaits can be compared.
//!
//! When its input has a byte, it prints Plimsoll's numbers of tokio's tasks, `TASK NUMBER` in each line, and in a last line
//! the page `/debug/plimsoll/threads`. Then it waits for its input to end.

#[path = "../../../crates/plimsoll-awaits/examples/waiting/mod.rs"]
mod waiting;

use std::future::Future;
use std::io::Read as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use waiting::Spawns;

static NUMBERS: Mutex<Vec<(String, u64)>> = Mutex::new(Vec::new());

static SPAWNED: AtomicUsize = AtomicUsize::new(0);

struct Tracked;

impl Spawns for Tracked {
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        SPAWNED.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(plimsoll::task::track(future))
    }

    fn begins() {
        let number = plimsoll::task::current().expect("the task is tracked").0;
        let mut numbers = NUMBERS.lock().expect("no thread panics");
        numbers.push((tokio::task::id().to_string(), number));
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(waiting::start::<Tracked>());
    while NUMBERS.lock().expect("no thread panics").len() < SPAWNED.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("ready");
    let mut byte = [0];
    let read = std::io::stdin().read(&mut byte).expect("a pipe");
    if read > 0 {
        for (task, number) in &*NUMBERS.lock().expect("no thread panics") {
            println!("{task} {number}");
        }
        let page = plimsoll::http::handle("GET", "/debug/plimsoll/threads", "");
        println!("{}", String::from_utf8_lossy(&page.body).replace('\n', ""));
        std::io::stdin()
            .read_to_end(&mut Vec::new())
            .expect("a pipe");
    }
    runtime.shutdown_background();
}
