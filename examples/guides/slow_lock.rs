//! Eight workers share a table behind one lock; one kind of request holds it for a long time.

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

static TABLE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

fn main() {
    let _plimsoll = plimsoll::start();
    thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                for request in 0..50 {
                    match (worker + request) % 10 {
                        0 => rebuild_index(),
                        _ => look_up(request),
                    }
                }
            });
        }
    });
}

#[inline(never)]
fn look_up(key: u64) {
    let table = TABLE.lock().unwrap();
    let _found = table.contains(&key);
}

#[inline(never)]
fn rebuild_index() {
    let mut table = TABLE.lock().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(5) {
        table.push(1);
        table.clear();
    }
}
