//! The CPU time used by Plimsoll itself: its own threads, and threads that read statistics, write
//! profiles or answer requests. The time of its hooks counts as the program's and is excluded:
//! measuring it would cost more than the hooks.

use std::cell::Cell;
use std::marker::PhantomData;

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns the CPU time measured so far, in nanoseconds.
pub fn nanoseconds() -> u64 {
    NANOSECONDS.load(Ordering::Relaxed)
}

/// Returns whether the calling thread's time counts as Plimsoll's. For signal handlers.
pub fn is_measured() -> bool {
    DEPTH.get() > 0
}

/// Counts the calling thread's time as Plimsoll's until the guard is dropped. Guards nest. Takes
/// two system calls.
pub fn measure() -> Measured {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    Measured {
        began: (depth == 0).then(clock::thread_cpu),
        of_this_thread: PhantomData,
    }
}

/// Measures the thread's CPU time as Plimsoll's own, until this is dropped.
pub struct Measured {
    /// The start time, in the outermost guard.
    began: Option<u64>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Measured {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if let Some(began) = self.began {
            let took = clock::thread_cpu().saturating_sub(began);
            NANOSECONDS.fetch_add(took, Ordering::Relaxed);
        }
    }
}
