//! Two transfers lock two accounts in opposite order, and never finish.

use plimsoll::profile::{self, Format};
use plimsoll::sync::tokio::Mutex;
use plimsoll::task::TrackExt;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

static SAVINGS: Mutex<i64> = Mutex::named("savings", 100);
static CHECKING: Mutex<i64> = Mutex::named("checking", 100);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let _plimsoll = plimsoll::start();
    let leaks = profile::lookup("goroutineleak").unwrap();
    // Locks record their owners after the first read of this profile.
    leaks.write_to(&mut std::io::sink(), Format::Text).unwrap();

    tokio::spawn(transfer(&SAVINGS, &CHECKING).tracked_as("save"));
    tokio::spawn(transfer(&CHECKING, &SAVINGS).tracked_as("spend"));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    leaks
        .write_to(&mut std::io::stdout().lock(), Format::Text)
        .unwrap();
}

async fn transfer(from: &'static Mutex<i64>, to: &'static Mutex<i64>) {
    let mut from = from.lock().await;
    tokio::task::yield_now().await;
    let mut to = to.lock().await;
    *from -= 10;
    *to += 10;
}
