//! What Plimsoll itself takes of the processors' time: its own threads, and whoever reads
//! statistics, writes profiles or answers requests. What its hooks take is the program's, and not
//! in here: measuring it would cost more than it.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::os::clock;
use crate::primitives::{AtomicU64, Ordering};

static NANOSECONDS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// What was measured by now, in nanoseconds.
pub(crate) fn nanoseconds() -> u64 {
    NANOSECONDS.load(Ordering::Relaxed)
}

/// The calling thread's time is Plimsoll's until the guard is dropped. They nest. Takes two system
/// calls.
pub(crate) fn measure() -> Measured {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    Measured {
        began: (depth == 0).then(clock::thread_cpu),
        of_this_thread: PhantomData,
    }
}

pub(crate) struct Measured {
    /// If it is the outermost.
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
