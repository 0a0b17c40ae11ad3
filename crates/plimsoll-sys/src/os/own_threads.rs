//! The list of Plimsoll's threads in the process.
//!
//! Threads that live long wait by [`wait`], so that they can be ended: before a system call filter applies to all
//! threads of the process, which could end the process for a call of theirs.

use std::cell::Cell;
use std::ptr;
use std::time::Duration;

use super::bell::Bell;
use super::{self as os, clock};
use crate::os::fork::{Rank, Table, join};
use crate::primitives::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering, yield_now};

/// A running thread of Plimsoll.
#[derive(Debug)]
struct Entry {
    /// The system's number of the thread, negative once it leaves the list. 0 for a free entry.
    ///
    /// The system lists a thread until after its last instruction, so its entry remains until it has ended. A thread
    /// of the program with the same number would count as Plimsoll's; the system gives a number again only after
    /// all others, and each listing of threads frees such entries.
    thread: AtomicI32,
    /// The bell for which the thread waits; null if it does not wait.
    bell: AtomicPtr<Bell>,
    /// The number of other threads that are about to ring the bell, which must stay meanwhile.
    ringing: AtomicU32,
    /// Whether the thread must end.
    is_ending: AtomicBool,
}

/// Plimsoll's running threads. A thread that finds no free entry counts as the program's.
static RUNNING: [Entry; 64] = [const {
    Entry {
        thread: AtomicI32::new(0),
        bell: AtomicPtr::new(ptr::null_mut()),
        ringing: AtomicU32::new(0),
        is_ending: AtomicBool::new(false),
    }
}; 64];

/// The number of threads that were created and are not in the list yet.
static STARTING: AtomicI32 = AtomicI32::new(0);

/// The number of announcements, wrapping.
static ANNOUNCED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The entry of the calling thread, if it is one of Plimsoll's.
    static OWN: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// Returns whether a thread of this process is one of Plimsoll's.
pub fn is_own(thread: i32) -> bool {
    let mut running = RUNNING.iter();
    running.any(|entry| entry.thread.load(Ordering::Relaxed).abs() == thread)
}

/// Returns the number of Plimsoll's threads.
pub fn count() -> usize {
    free_ended();
    listed().count()
}

fn listed() -> impl Iterator<Item = i32> {
    let threads = RUNNING.iter();
    let threads = threads.map(|entry| entry.thread.load(Ordering::Relaxed).abs());
    threads.filter(|&thread| thread != 0)
}

/// Frees the entries of threads that the system has ended.
fn free_ended() {
    for entry in &RUNNING {
        let thread = entry.thread.load(Ordering::Acquire);
        if thread < 0 && os::has_ended(-thread) {
            // Another thread may have freed the entry, and a third taken it.
            let (freed, seen) = (Ordering::Release, Ordering::Relaxed);
            let _ = entry.thread.compare_exchange(thread, 0, freed, seen);
        }
    }
}

/// The number of times that threads are listed until no thread of Plimsoll begins meanwhile.
const LISTINGS: usize = 8;

/// The longest time for which a listing waits for threads that begin, in nanoseconds: longer than a thread waits for a
/// processor of a loaded machine.
const PATIENCE: u64 = 1_000_000_000;

/// Calls `list`, which lists the threads of the process, and returns its result with Plimsoll's threads: all that
/// `list` can have found, since it is called again if a thread of Plimsoll began meanwhile. Waits for such threads, at
/// most a second in all, and calls `list` at most `LISTINGS` times. Not for hooks.
pub fn beside<T>(mut list: impl FnMut() -> T) -> (T, Vec<i32>) {
    free_ended();
    let deadline = clock::now().saturating_add(PATIENCE);
    let mut turn = 0;
    loop {
        while STARTING.load(Ordering::SeqCst) > 0 && clock::now() < deadline {
            yield_now();
        }
        // A thread is announced before it is created. If it was announced before this count was read, it is starting
        // or in the list; if afterwards, the count changes.
        let announced = ANNOUNCED.load(Ordering::SeqCst);
        let is_settled = STARTING.load(Ordering::SeqCst) <= 0;
        let own = listed().collect();
        let found = list();
        turn += 1;
        let is_complete = is_settled && ANNOUNCED.load(Ordering::SeqCst) == announced;
        if is_complete || turn == LISTINGS {
            return (found, own);
        }
    }
}

static FORK: Table = Table::new(Rank::TABLES, after_fork_in_child);

/// Clears the list in the child of a fork, which has none of these threads.
fn after_fork_in_child() {
    for entry in &RUNNING {
        entry.bell.store(ptr::null_mut(), Ordering::Relaxed);
        entry.ringing.store(0, Ordering::Relaxed);
        entry.is_ending.store(false, Ordering::Relaxed);
        entry.thread.store(0, Ordering::Relaxed);
    }
    STARTING.store(0, Ordering::Relaxed);
}

/// Announces a thread that is about to be created. It enters the list by [`Registration::enter`].
pub fn announce() {
    join(&FORK);
    STARTING.fetch_add(1, Ordering::SeqCst);
    ANNOUNCED.fetch_add(1, Ordering::SeqCst);
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
    while entry.ringing.load(Ordering::SeqCst) != 0 {
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
        if *thread < 0 {
            *thread = -*thread;
            continue;
        }
        entry.is_ending.store(true, Ordering::SeqCst);
        entry.ringing.fetch_add(1, Ordering::SeqCst);
        let bell = entry.bell.load(Ordering::SeqCst);
        // SAFETY: the thread stored a reference, and keeps it until `ringing` is 0 again.
        if let Some(bell) = unsafe { bell.as_ref() } {
            bell.ring();
        }
        entry.ringing.fetch_sub(1, Ordering::SeqCst);
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
        free_ended();
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
            let me = entry.thread.load(Ordering::Relaxed);
            entry.thread.store(-me, Ordering::Release);
        }
    }
}
