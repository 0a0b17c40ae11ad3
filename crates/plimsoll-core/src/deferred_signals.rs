//! Defers signals that end the process. Such a signal may arrive while a thread is counting an
//! event, or reading the counts. A report waits for every such thread, so a report written at that
//! time would wait for itself. The signal is deferred until the thread has finished.

use std::cell::Cell;

use plimsoll_sys::os::signals;

thread_local! {
    static COUNTING: Cell<u32> = const { Cell::new(0) };
    /// The deferred signal; 0 for none.
    static PUT_OFF: Cell<i32> = const { Cell::new(0) };
}

/// Marks the calling thread as counting or reading, until this is dropped.
pub struct Counting(());

impl Counting {
    /// Marks the thread.
    pub fn begin() -> Self {
        COUNTING.set(COUNTING.get() + 1);
        Self(())
    }

    /// Returns whether this is the thread's only `Counting`.
    pub fn is_outermost(&self) -> bool {
        COUNTING.get() == 1
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.set(COUNTING.get() - 1);
        if COUNTING.get() == 0 && PUT_OFF.get() != 0 {
            signals::raise(PUT_OFF.take());
        }
    }
}

/// Defers the signal if the calling thread is counting; returns whether it did. For signal
/// handlers: a deferred signal arrives again as soon as a report can be written.
pub fn put_off(signal: i32) -> bool {
    let counting = COUNTING.get() != 0;
    if counting {
        PUT_OFF.set(signal);
    }
    counting
}
