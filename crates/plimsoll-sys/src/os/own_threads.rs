//! The list of Plimsoll's threads in the process.
//!
//! Threads that live long wait by [`wait`], so that they can be ended: before a system call filter applies to all
//! threads of the process, which could end the process for a call of theirs.

use std::cell::Cell;
use std::ptr;
use std::time::Duration;

use super::eventfd::Bell;
use super::{self as os, clock};
use crate::os::fork::{Rank, Table, join};
use crate::primitives::{AtomicBool, AtomicI32, AtomicPtr, Ordering, yield_now};

/// A running thread of Plimsoll.
#[derive(Debug)]
struct Entry {
    /// The system's number of the thread; 0 for a free entry.
    thread: AtomicI32,
    /// The bell for which the thread waits; null if it does not wait.
    bell: AtomicPtr<Bell>,
    /// Whether another thread is about to ring the bell, which must stay meanwhile.
    is_ringing: AtomicBool,
    /// Whether the thread must end.
    is_ending: AtomicBool,
}

/// Plimsoll's running threads. A thread that finds no free entry counts as the program's.
static RUNNING: [Entry; 64] = [const {
    Entry {
        thread: AtomicI32::new(0),
        bell: AtomicPtr::new(ptr::null_mut()),
        is_ringing: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
    }
}; 64];

/// The number of threads that were created and are not in the list yet.
static STARTING: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// The entry of the calling thread, if it is one of Plimsoll's.
    static OWN: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// Returns whether a thread of this process is one of Plimsoll's.
pub fn is_own(thread: i32) -> bool {
    let mut running = RUNNING.iter();
    running.any(|entry| entry.thread.load(Ordering::Relaxed) == thread)
}

/// Returns the number of Plimsoll's threads.
pub fn count() -> usize {
    let running = RUNNING.iter();
    running
        .filter(|entry| entry.thread.load(Ordering::Relaxed) != 0)
        .count()
}

static FORK: Table = Table::new(Rank::TABLES, after_fork_in_child);

/// Clears the list in the child of a fork, which has none of these threads.
fn after_fork_in_child() {
    for entry in &RUNNING {
        entry.bell.store(ptr::null_mut(), Ordering::Relaxed);
        entry.is_ringing.store(false, Ordering::Relaxed);
        entry.is_ending.store(false, Ordering::Relaxed);
        entry.thread.store(0, Ordering::Relaxed);
    }
    STARTING.store(0, Ordering::Relaxed);
}

/// Announces a thread that is about to be created. It enters the list by [`Registration::enter`].
pub fn announce() {
    join(&FORK);
    STARTING.fetch_add(1, Ordering::SeqCst);
}

/// Withdraws the announcement of a thread that was not created.
pub fn withdraw() {
    STARTING.fetch_sub(1, Ordering::SeqCst);
}

/// The thread must end at once: see [`end_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MustEnd;

/// Waits until the bell rings, for at most `time` if that is given. For Plimsoll's threads.
///
/// # Errors
/// The thread must end.
pub fn wait(bell: &Bell, time: Option<Duration>) -> Result<(), MustEnd> {
    wait_with(bell, || match time {
        Some(time) => bell.wait_at_most(time),
        None => bell.wait(),
    })
}

/// Calls `wait`, which returns when the bell rings. Otherwise as [`wait()`].
pub fn wait_with<R>(bell: &Bell, wait: impl FnOnce() -> R) -> Result<R, MustEnd> {
    let Some(entry) = OWN.get() else {
        return Ok(wait());
    };
    // Sequentially consistent: either this thread sees that it must end, or the one that ends it sees the bell.
    let bell = ptr::from_ref(bell).cast_mut();
    entry.bell.store(bell, Ordering::SeqCst);
    let waited = (!entry.is_ending.load(Ordering::SeqCst)).then(wait);
    entry.bell.store(ptr::null_mut(), Ordering::SeqCst);
    while entry.is_ringing.load(Ordering::SeqCst) {
        std::hint::spin_loop();
    }
    let goes_on = !entry.is_ending.load(Ordering::SeqCst);
    waited.filter(|_| goes_on).ok_or(MustEnd)
}

/// Makes all of Plimsoll's threads end, and waits until the system has ended them, for at most `patience`. Returns
/// whether it has. Threads that finish short work end by themselves. Does not allocate or lock.
pub fn end_all(patience: Duration) -> bool {
    let me = os::thread_id();
    let deadline = clock::now().saturating_add(patience.as_nanos() as u64);
    let in_time = |is_over: &dyn Fn() -> bool| {
        while !is_over() {
            if clock::now() > deadline {
                return false;
            }
            yield_now();
        }
        true
    };
    if !in_time(&|| STARTING.load(Ordering::SeqCst) <= 0) {
        return false;
    }
    let mut threads = [0; RUNNING.len()];
    for (entry, thread) in RUNNING.iter().zip(&mut threads) {
        *thread = entry.thread.load(Ordering::Acquire);
        if *thread == 0 || *thread == me {
            *thread = 0;
            continue;
        }
        entry.is_ending.store(true, Ordering::SeqCst);
        entry.is_ringing.store(true, Ordering::SeqCst);
        let bell = entry.bell.load(Ordering::SeqCst);
        // SAFETY: the thread stored a reference, and keeps it until `is_ringing` is false again.
        if let Some(bell) = unsafe { bell.as_ref() } {
            bell.ring();
        }
        entry.is_ringing.store(false, Ordering::SeqCst);
    }
    let mut running = threads.into_iter().filter(|&thread| thread != 0);
    running.all(|thread| in_time(&|| !os::is_running(thread)))
}

/// The calling thread's entry in the list, until this is dropped.
#[derive(Debug)]
pub struct Registration(Option<&'static Entry>);

impl Registration {
    /// Enters the calling thread, which was announced.
    pub fn enter() -> Self {
        let me = os::thread_id();
        let entry = RUNNING.iter().find(|entry| {
            let thread = &entry.thread;
            let taken = thread.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        });
        OWN.set(entry);
        STARTING.fetch_sub(1, Ordering::SeqCst);
        Self(entry)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(entry) = self.0 {
            OWN.set(None);
            entry.is_ending.store(false, Ordering::Relaxed);
            entry.thread.store(0, Ordering::Release);
        }
    }
}
