//! Makes one thread certainly wait for a lock. Nothing else here waits by a futex call of the
//! standard library.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Waits until the thread sleeps. `thread` is its name in `/proc/thread-self`.
fn until_asleep(thread: &str) {
    let path = format!("/proc/{thread}/stat");
    loop {
        let stat = std::fs::read_to_string(&path).expect("the thread is there");
        let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
        if after_name.trim_start().starts_with('S') {
            return;
        }
        std::thread::yield_now();
    }
}

/// Locks, makes another thread wait for the same lock, and unlocks.
pub fn contend<G>(lock: impl Fn() -> G + Sync) {
    let (name, done) = (OnceLock::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let held = lock();
        let waiter = scope.spawn(|| {
            let this = std::fs::read_link("/proc/thread-self").expect("Linux has it");
            let this = this.into_os_string().into_string().expect("numbers");
            name.set(this).expect("it is set once");
            drop(lock());
            done.store(true, Ordering::Release);
        });
        let name = loop {
            match name.get() {
                Some(name) => break name,
                None => std::thread::yield_now(),
            }
        };
        until_asleep(name);
        assert!(!done.load(Ordering::Acquire));
        drop(held);
        // Joined here, because the scope's own join would wait by a futex call.
        waiter.join().expect("it does not panic");
    });
}
