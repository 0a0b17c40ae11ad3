//! A known number of waits for a lock.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::{fs, thread};

use plimsoll_testkit::client::wait_for;

use crate::{read, within};

/// The number of waits.
pub const LOCK_WAITS: usize = 20;

static LOCK: Mutex<()> = Mutex::new(());

#[inline(never)]
fn waits_here() {
    drop(LOCK.lock().expect("no thread panicked"));
}

#[inline(never)]
fn releases_here(guard: std::sync::MutexGuard<'_, ()>) {
    drop(guard);
}

/// Returns whether a thread sleeps in a futex call.
fn waits(thread: i32) -> bool {
    let read = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let call = read("syscall").unwrap_or_default();
    let stat = read("stat").unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    state.starts_with('S') && call.starts_with(&format!("{} ", libc::SYS_futex))
}

/// Makes threads wait for a lock, and compares the profiles `block` and `mutex` with that.
pub fn waits_for_locks(pages: SocketAddr) {
    for _ in 0..LOCK_WAITS {
        let waiter = AtomicI32::new(0);
        thread::scope(|scope| {
            let guard = LOCK.lock().expect("no thread panicked");
            scope.spawn(|| {
                // SAFETY: has no preconditions.
                waiter.store(unsafe { libc::gettid() }, Ordering::Release);
                waits_here();
            });
            wait_for("a thread that waits", || {
                let waiter = waiter.load(Ordering::Acquire);
                waiter != 0 && waits(waiter)
            });
            releases_here(guard);
        });
    }
    for (name, function) in [("block", "waits_here"), ("mutex", "releases_here")] {
        let profile = read(pages, name);
        let events = within(&profile, function);
        let events: i64 = events.iter().map(|sample| sample.value[0]).sum();
        assert_eq!(events, LOCK_WAITS as i64, "{name}");
    }
}
