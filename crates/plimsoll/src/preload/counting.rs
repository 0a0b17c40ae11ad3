//! A signal that ends the process may come while a thread is counting an event, or reading what was
//! counted. A report waits for all who are, so one that was written then would wait for itself: the
//! signal is put off until the thread has done that.

use std::cell::Cell;

thread_local! {
    static COUNTING: Cell<u32> = const { Cell::new(0) };
    /// The signal that was put off; 0 for none.
    static PUT_OFF: Cell<i32> = const { Cell::new(0) };
}

/// The calling thread counts or reads, until this is dropped.
pub(crate) struct Counting(());

impl Counting {
    pub(crate) fn begin() -> Self {
        COUNTING.set(COUNTING.get() + 1);
        Self(())
    }

    /// Whether the thread was at none before this one.
    pub(crate) fn is_outermost(&self) -> bool {
        COUNTING.get() == 1
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.set(COUNTING.get() - 1);
        if COUNTING.get() == 0 && PUT_OFF.get() != 0 {
            // SAFETY: sends a signal to this thread.
            unsafe { libc::raise(PUT_OFF.take()) };
        }
    }
}

/// In a signal handler: whether the signal comes again as soon as a report can be written.
pub fn put_off(signal: i32) -> bool {
    let counting = COUNTING.get() != 0;
    if counting {
        PUT_OFF.set(signal);
    }
    counting
}
