//! The work of one copy, whose figures are known.

use std::hint::black_box;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::{fs, thread};

/// The size of the blocks, in a size class that nothing else here uses.
pub const SIZE: usize = 13_500;

/// Returns whether a thread sleeps in a futex call.
fn is_waiting(thread: i32) -> bool {
    let read = |name| fs::read_to_string(format!("/proc/self/task/{thread}/{name}"));
    let call = read("syscall").unwrap_or_default();
    let stat = read("stat").unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    state.starts_with('S') && call.starts_with(&format!("{} ", libc::SYS_futex))
}

/// Makes threads wait for a lock: `waits` locks it, and `releases` drops the guard.
pub fn contend(times: usize, waits: fn(&Mutex<()>), releases: fn(MutexGuard<'_, ()>)) {
    static LOCK: Mutex<()> = Mutex::new(());
    for _ in 0..times {
        let waiter = AtomicI32::new(0);
        thread::scope(|scope| {
            let guard = LOCK.lock().expect("no thread panicked");
            scope.spawn(|| {
                // SAFETY: has no preconditions.
                waiter.store(unsafe { libc::gettid() }, Ordering::Release);
                waits(&LOCK);
            });
            loop {
                let waiter = waiter.load(Ordering::Acquire);
                if waiter != 0 && is_waiting(waiter) {
                    break;
                }
                thread::yield_now();
            }
            releases(guard);
        });
    }
}

/// Allocates blocks in the function that calls this one.
#[inline(always)]
pub fn keep(kept: &mut Vec<Vec<u8>>, blocks: usize) {
    for _ in 0..blocks {
        kept.push(black_box(Vec::with_capacity(SIZE)));
    }
    black_box(kept);
}
