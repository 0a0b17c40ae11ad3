//! Polls that occupy an executor's thread for long, with the thread's stack during the poll.
//!
//! While a threshold is set, each polling thread notes the start of its outermost poll in its entry
//! ([`Watched`]) of a table. A thread of Plimsoll's, the *watcher*, checks these entries. When a
//! poll has taken longer than the threshold, the watcher reads its stack while it runs, as the
//! profile `goroutine` reads threads. It reads from outside if the thread is blocked, and by one
//! signal if the thread is running. If the stack could not be read, the watcher tries again, for a
//! second. After that, the poll is in the profile, and its time grows there until it ends.
//!
//! A long poll that the watcher has not seen is counted at its end, without a stack. Counts and
//! times therefore cover all long polls. The poller neither waits nor locks, and it adds to the
//! table of stacks, as samples do.
//!
//! A nested poll is part of the outermost one, which is the one that occupies the thread.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::os::{self, clock};
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use super::identity::{self, UNUSED_BIT};
use super::slab::SLAB;
use super::slot::Slot;
use super::times;
use super::watched::{Running, Watched};
use plimsoll_core::fork::Order;
use plimsoll_core::internal_thread;
use plimsoll_core::label::Labels;
use plimsoll_core::stack::{Bucket, Kind, TABLE};
use plimsoll_threads::thread;

/// The cells of a bucket of [`Kind::LongPoll`]: the number of polls, and their nanoseconds.
const POLLS: usize = 0;
const DELAY: usize = 1;

/// The threshold in nanoseconds; 0 if there is none.
static THRESHOLD: AtomicU64 = AtomicU64::new(0);

/// The number of threads that can be watched. Polls of further threads are counted at their end.
const PLACES: usize = 1 << 12;

static TABLE_OF_THREADS: [Watched; PLACES] = [const { Watched::new() }; PLACES];

/// The number of entries, from the first on, that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The key whose destructor is [`ended`].
static KEY: Key = Key::new();

/// The calling thread's entry.
#[derive(Clone, Copy)]
enum Own {
    Untaken,
    At(&'static Watched),
    /// No entry was free, or the entry has been released.
    Never,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::Untaken) };
}

/// Begins a poll. Returns false if it is part of another poll: of a watched one, or, for a thread
/// without an entry, of any.
pub(super) fn begin(slot: &Slot, at: u64, is_nested: bool) -> bool {
    let place = match OWN.get() {
        Own::At(place) => Some(place),
        Own::Untaken => take(),
        Own::Never => None,
    };
    match place {
        Some(place) => place.begin(SLAB.number(slot), at),
        None => !is_nested,
    }
}

/// Ends a poll, which took that long.
pub(super) fn end(slot: &Slot, nanoseconds: u64) {
    let seen = match OWN.get() {
        Own::At(place) => place.end(),
        Own::Untaken | Own::Never => None,
    };
    if let Some(seen) = seen {
        let rest = nanoseconds.saturating_sub(seen.accounted);
        return TABLE.add(Bucket(seen.bucket), &[(DELAY, rest)]);
    }
    let threshold = THRESHOLD.load(Ordering::Relaxed);
    if threshold != 0 && nanoseconds >= threshold {
        let labels = Labels::of_number(slot.labels());
        let bucket = TABLE.bucket(Kind::LongPoll, identity::key(slot) | UNSEEN, labels, &[]);
        TABLE.add(bucket, &[(POLLS, 1), (DELAY, nanoseconds)]);
    }
}

/// Takes an entry for the calling thread, until the thread ends.
#[cold]
fn take() -> Option<&'static Watched> {
    if !KEY.is_prepared() {
        return None;
    }
    let me = os::thread_id() as u32;
    let found = TABLE_OF_THREADS.iter().position(|place| {
        let thread = &place.thread;
        thread.load(Ordering::Relaxed) == Watched::FREE
            && thread
                .compare_exchange(Watched::FREE, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    });
    let place = found.map(|at| {
        USED.fetch_max(at + 1, Ordering::Release);
        &TABLE_OF_THREADS[at]
    });
    // SAFETY: the key's destructor `ended` receives the pointer to a static [`Watched`] that is set
    // here.
    let noticed = place.filter(|&place| unsafe { KEY.set(std::ptr::from_ref(place).cast()) });
    if let (Some(place), None) = (place, noticed) {
        // No destructor would release the entry at the thread's end, so it is released now.
        place.clear();
    }
    OWN.set(noticed.map_or(Own::Never, Own::At));
    noticed
}

unsafe extern "C" fn ended(place: *mut c_void) {
    // Polls later in the thread's end are counted when they end.
    OWN.set(Own::Never);
    // SAFETY: `take` stored a pointer to a static [`Watched`] under this key.
    unsafe { &*place.cast::<Watched>() }.clear();
}

/// Creates the key whose destructor runs at the end of threads, once. Until then, no thread takes
/// an entry.
fn prepare_key() {
    if !KEY.is_prepared() {
        KEY.prepare(ended);
    }
}

/// The handle of the watcher thread.
pub struct Watcher {
    bell: Arc<Bell>,
    /// The process in which the thread runs. The child of a fork has no watcher.
    process: u32,
}

static WATCHER: ForkLock<Option<Watcher>> =
    ForkLock::with_reset(Order::LongPolls.rank(), None, |_| after_fork_in_child());

/// Keeps the threshold unchanged, and the watcher idle, until the guard is dropped.
fn lock_watcher() -> ForkGuard<Option<Watcher>> {
    WATCHER.lock()
}

/// Sets the threshold in nanoseconds, 0 for none, and returns the previous one. In the child of a
/// fork, stacks are read only after the threshold is set again.
pub(super) fn set_threshold(nanoseconds: u64) -> u64 {
    let mut watcher = lock_watcher();
    let before = THRESHOLD.swap(nanoseconds, Ordering::Relaxed);
    if nanoseconds != 0 {
        prepare_key();
        let process = process_id();
        if watcher.as_ref().map(|watcher| watcher.process) != Some(process) {
            // Without a watcher thread, long polls are counted without stacks.
            *watcher = start(process);
        }
    }
    times::want_long_polls(nanoseconds != 0);
    if let Some(watcher) = &*watcher {
        watcher.bell.ring();
    }
    before
}

/// Returns the threshold in nanoseconds; 0 if there is none.
pub(super) fn threshold() -> u64 {
    THRESHOLD.load(Ordering::Relaxed)
}

fn start(process: u32) -> Option<Watcher> {
    let bell = Arc::new(Bell::new().ok()?);
    let rings = bell.clone();
    internal_thread::spawn(c"plimsoll-watch", move || watch(&rings)).ok()?;
    Some(Watcher { bell, process })
}

fn watch(bell: &Bell) {
    loop {
        let next = match THRESHOLD.load(Ordering::Relaxed) {
            0 => None,
            threshold => {
                let _alone = lock_watcher();
                Some(Duration::from_nanos(look(threshold)))
            }
        };
        if internal_thread::wait(bell, next).is_err() {
            return;
        }
    }
}

/// The shortest interval between two checks, in nanoseconds.
const SHORTEST: u64 = 250_000;

/// The time, in nanoseconds, for which the stack of a long poll is tried again at each check. A
/// running thread can be read only when it is scheduled, which may take time on a busy system.
const READ_AGAIN: u64 = 1_000_000_000;

/// Checks all polls, and returns the nanoseconds until the next check: until the first of the
/// current polls becomes long. A poll that begins later cannot be long before another threshold has
/// passed.
fn look(threshold: u64) -> u64 {
    let now = clock::now();
    let mut next = threshold;
    for place in &TABLE_OF_THREADS[..USED.load(Ordering::Acquire)] {
        let Some(running) = place.running() else {
            continue;
        };
        let nanoseconds = now.saturating_sub(running.began());
        if running.was_seen() {
            if let Some((bucket, more)) = place.advance(nanoseconds) {
                TABLE.add(Bucket(bucket), &[(DELAY, more)]);
            }
        } else if nanoseconds >= threshold {
            see(place, running, threshold);
        } else {
            next = next.min(threshold - nanoseconds);
        }
    }
    next.max(threshold / 4).max(SHORTEST)
}

/// Reads the stack of a poll, and adds it to the profile if the poll ran during all of the reading.
fn see(place: &Watched, running: Running, threshold: u64) {
    let thread = place.thread.load(Ordering::Relaxed) as i32;
    let Some(found) = thread::one(thread) else {
        return;
    };
    let since = || clock::now().saturating_sub(running.began());
    if found.frames.is_empty() && since() < threshold.saturating_add(READ_AGAIN) {
        return;
    }
    let key = identity::key(SLAB.slot(running.task));
    let bucket = TABLE.bucket(Kind::LongPoll, key, found.labels, &found.frames);
    let nanoseconds = since();
    if place.see(running, bucket.0, nanoseconds) {
        TABLE.add(bucket, &[(POLLS, 1), (DELAY, nanoseconds)]);
    }
}

/// Clears the table in the child of a fork. Only the calling thread exists there, under another ID,
/// and no thread watches.
fn after_fork_in_child() {
    let own = match OWN.get() {
        Own::At(place) => std::ptr::from_ref(place),
        Own::Untaken | Own::Never => std::ptr::null(),
    };
    for place in &TABLE_OF_THREADS[..USED.load(Ordering::Relaxed)] {
        if std::ptr::eq(place, own) {
            place
                .thread
                .store(os::thread_id() as u32, Ordering::Relaxed);
        } else {
            place.clear();
        }
    }
}

/// The long polls with one stack, one kind of task and one set of labels.
pub struct LongPolls {
    /// The return addresses, leaf first.
    pub stack: &'static [usize],
    /// The polls ended before the watcher saw them, so they have no stack.
    pub unseen: bool,
    /// The table of stacks was full.
    pub overflow: bool,
    /// The name of the task, or else the type of its future; empty if unknown.
    pub task: &'static str,
    /// The labels of the task.
    pub labels: Labels,
    /// The number of polls.
    pub polls: u64,
    /// The sum of their durations, in nanoseconds.
    pub delay_ns: u64,
}

/// Calls `visit` with all recorded long polls, at one instant.
pub fn read(mut visit: impl FnMut(LongPolls)) {
    TABLE.read(Kind::LongPoll, |record| {
        visit(LongPolls {
            stack: record.stack,
            unseen: record.size & UNSEEN != 0,
            overflow: record.overflow,
            task: identity::name(record.size & !UNSEEN),
            labels: record.labels,
            polls: record.cells[POLLS],
            delay_ns: record.cells[DELAY],
        });
    });
}

/// A bit of a key: the poll ended before the watcher saw it.
const UNSEEN: u64 = UNUSED_BIT;
