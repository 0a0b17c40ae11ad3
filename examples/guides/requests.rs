//! Requests of two classes, which are labelled: `search` computes, `export` allocates and waits.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::{http, label};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

static DISK: Mutex<Vec<u8>> = Mutex::new(Vec::new());

static IS_OVER: AtomicBool = AtomicBool::new(false);

fn main() {
    let _plimsoll = plimsoll::start();
    thread::scope(|scope| {
        scope.spawn(|| serve("search", search));
        scope.spawn(|| serve("export", export));
        scope.spawn(|| serve("export", export));
        // Over HTTP: curl -o wall.pb.gz 'http://127.0.0.1:6060/debug/pprof/wall?seconds=2'
        let wall = http::handle("GET", "/debug/pprof/wall", "seconds=2");
        IS_OVER.store(true, Ordering::Relaxed);
        fs::write("wall.pb.gz", wall.body).expect("the directory is writable");
    });
}

fn serve(request: &str, handle: fn()) {
    let _label = label::with([("request", request)]);
    while !IS_OVER.load(Ordering::Relaxed) {
        handle();
    }
}

#[inline(never)]
fn search() {
    let end = Instant::now() + Duration::from_millis(5);
    while Instant::now() < end {
        std::hint::black_box(score(1));
    }
}

#[inline(never)]
fn score(mut text: u64) -> u64 {
    let mut letters = 0;
    while letters < 100_000 {
        text ^= text << 13;
        text ^= text >> 7;
        letters += 1;
    }
    text
}

#[inline(never)]
fn export() {
    let rows = vec![b'x'; 20_000];
    let mut disk = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    disk.clear();
    disk.extend_from_slice(&rows);
    thread::sleep(Duration::from_millis(10));
}
