//! Polls that keep an executor's thread for long, with the stack of where it was meanwhile.
//!
//! While there is a threshold, each thread that polls notes when its outermost poll began, in a
//! place of its own ([`Watched`]), and a thread of Plimsoll's, the *watcher*, looks at those. A
//! poll that has taken longer than the threshold has its stack read while it runs, as the profile
//! `goroutine` reads threads: from outside if the thread is blocked, by one signal if it is
//! running; and again, for a second, if it could not be read. It is then in the profile, and its
//! time grows there until it ends.
//!
//! What the watcher does not come to see is counted when it ends, without a stack: so counts and
//! times are those of all long polls. The poller neither waits nor locks, and what it adds is in
//! the table of stacks, as samples are.
//!
//! A poll within a poll is a part of that: it is the outermost that keeps the thread from others.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::slab::SLAB;
use super::slot::{Slot, TypeName};
use super::times;
use super::watched::{Running, Watched};
use crate::label::Labels;
use crate::os::bell::Bell;
use crate::os::{self, clock};
use crate::own_thread;
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::stack::{Bucket, Kind, TABLE};
use crate::thread;

/// The cells of a bucket of [`Kind::LongPoll`]: how many, and their nanoseconds.
const POLLS: usize = 0;
const DELAY: usize = 1;

/// How many nanoseconds are long; 0 if none are.
static THRESHOLD: AtomicU64 = AtomicU64::new(0);

/// How many threads can be watched. Polls of those beyond are counted when they end.
const PLACES: usize = 1 << 12;

static TABLE_OF_THREADS: [Watched; PLACES] = [const { Watched::new() }; PLACES];

/// How many of them there are from the bottom of which any was ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The C library's number of what calls [`ended`], and 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The calling thread's place.
#[derive(Clone, Copy)]
enum Own {
    Untaken,
    At(&'static Watched),
    /// There was none, or it has been given back.
    Never,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::Untaken) };
}

/// A poll begins. False if it is part of one that is watched, or, if there is no place, of any.
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

/// It took so long.
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
        let bucket = TABLE.bucket(Kind::LongPoll, key(slot) | UNSEEN, labels, &[]);
        TABLE.add(bucket, &[(POLLS, 1), (DELAY, nanoseconds)]);
    }
}

/// Takes a place for the calling thread, for as long as that lives.
#[cold]
fn take() -> Option<&'static Watched> {
    let key = KEY.load(Ordering::Acquire).checked_sub(1)?;
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
    // SAFETY: a key that was made. The destructor gets what is set here.
    let noticed = place.filter(|&place| unsafe {
        libc::pthread_setspecific(key, std::ptr::from_ref(place).cast()) == 0
    });
    if let (Some(place), None) = (place, noticed) {
        // Nobody would give it back at the end: so it is, now.
        place.clear();
    }
    OWN.set(noticed.map_or(Own::Never, Own::At));
    noticed
}

extern "C" fn ended(place: *mut c_void) {
    // Polls that come after this in the thread's end are counted when they end.
    OWN.set(Own::Never);
    // SAFETY: what `take` has set, which is static.
    unsafe { &*place.cast::<Watched>() }.clear();
}

/// Makes what notices the end of threads, once. Until then, no thread takes a place.
fn prepare_key() {
    if KEY.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

/// The thread that looks.
pub(crate) struct Watcher {
    bell: Arc<Bell>,
    /// The process that has it. A fork's child has not.
    process: u32,
}

static WATCHER: Mutex<Option<Watcher>> = Mutex::new(None);

/// Keeps the threshold as it is, and the watcher from looking, until the guard is dropped: for a
/// fork.
pub(crate) fn lock_watcher() -> MutexGuard<'static, Option<Watcher>> {
    WATCHER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how many nanoseconds are long, 0 for none, and returns the number before. In a fork's
/// child, it has to be set anew for stacks to be read.
pub(super) fn set_threshold(nanoseconds: u64) -> u64 {
    let mut watcher = lock_watcher();
    let before = THRESHOLD.swap(nanoseconds, Ordering::Relaxed);
    if nanoseconds != 0 {
        prepare_key();
        let process = std::process::id();
        if watcher.as_ref().map(|watcher| watcher.process) != Some(process) {
            // If there is no thread to be had, long polls are counted without stacks.
            *watcher = start(process);
        }
    }
    times::want_long_polls(nanoseconds != 0);
    if let Some(watcher) = &*watcher {
        watcher.bell.ring();
    }
    before
}

/// How many nanoseconds are long; 0 if none are.
pub(super) fn threshold() -> u64 {
    THRESHOLD.load(Ordering::Relaxed)
}

fn start(process: u32) -> Option<Watcher> {
    let bell = Arc::new(Bell::new().ok()?);
    let rings = bell.clone();
    own_thread::spawn(c"plimsoll-watch", move || watch(&rings)).ok()?;
    Some(Watcher { bell, process })
}

fn watch(bell: &Bell) {
    loop {
        match THRESHOLD.load(Ordering::Relaxed) {
            0 => bell.wait(None),
            threshold => {
                let alone = lock_watcher();
                let next = look(threshold);
                drop(alone);
                bell.wait_at_most(Duration::from_nanos(next));
            }
        }
    }
}

/// The least time between two looks, in nanoseconds.
const SHORTEST: u64 = 250_000;

/// How long after a poll has become long, in nanoseconds, it is read again at the next look if it
/// could not be: a thread that runs is read when it is let run, and where others are as well, that
/// may not be at once.
const READ_AGAIN: u64 = 1_000_000_000;

/// Looks at all polls, and returns after how many nanoseconds to look again: when the first of
/// those under way is long. One that begins after this cannot be long before another threshold.
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

/// Reads where a poll is, and puts it into the profile if it was there all the time.
fn see(place: &Watched, running: Running, threshold: u64) {
    let thread = place.thread.load(Ordering::Relaxed) as i32;
    let Some(found) = thread::one(thread) else {
        return;
    };
    let since = || clock::now().saturating_sub(running.began());
    if found.frames.is_empty() && since() < threshold.saturating_add(READ_AGAIN) {
        return;
    }
    let key = key(SLAB.slot(running.task));
    let bucket = TABLE.bucket(Kind::LongPoll, key, found.labels, &found.frames);
    let nanoseconds = since();
    if place.see(running, bucket.0, nanoseconds) {
        TABLE.add(bucket, &[(POLLS, 1), (DELAY, nanoseconds)]);
    }
}

/// In the child of a fork: there is the calling thread, under another number, and nobody watches.
pub(super) fn after_fork_in_child() {
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

/// What was recorded at one stack, of one kind of task, with the same labels.
pub(crate) struct LongPolls {
    pub(crate) stack: &'static [usize],
    /// They were over before they were seen, so that there is no stack.
    pub(crate) unseen: bool,
    /// The table of stacks was full.
    pub(crate) overflow: bool,
    /// The name of the task, or else the type of its future; empty if it is not known.
    pub(crate) task: &'static str,
    pub(crate) labels: Labels,
    pub(crate) polls: u64,
    pub(crate) delay_ns: u64,
}

/// Calls `visit` with all that there is, at one instant.
pub(crate) fn read(mut visit: impl FnMut(LongPolls)) {
    TABLE.read(Kind::LongPoll, |record| {
        visit(LongPolls {
            stack: record.stack,
            unseen: record.size & UNSEEN != 0,
            overflow: record.overflow,
            task: task_of(record.size & !UNSEEN),
            labels: record.labels,
            polls: record.cells[POLLS],
            delay_ns: record.cells[DELAY],
        });
    });
}

/// In a key: the poll was over before it was seen. No pointer has that bit.
const UNSEEN: u64 = 1 << 47;

/// Below this bit of a key is the type of a task that has no name, above it the number of a name.
const NAME: u32 = 48;

/// What tells the buckets of different tasks apart.
fn key(slot: &Slot) -> u64 {
    match slot.name() {
        0 => slot.type_name() as u64,
        name => u64::from(name) << NAME,
    }
}

fn task_of(key: u64) -> &'static str {
    if key >> NAME != 0 {
        return Labels::of_number((key >> NAME) as u32)
            .get("")
            .unwrap_or_default();
    }
    if key == 0 {
        return "";
    }
    // SAFETY: of a task that was being polled, or else nothing was counted with that key.
    let name = unsafe { std::mem::transmute::<usize, TypeName>(key as usize) };
    name()
}
