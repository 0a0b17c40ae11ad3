//! The labels of each thread, for readers on other threads.
//!
//! A lock-free table of fixed size. A thread takes a *place* in it when it first has labels. From
//! then on, each change of its labels stores the number of the set there. The thread releases the
//! place at its end, in a destructor that the C library calls however the thread ends. No thread
//! therefore reads the memory of another, which disappears with its thread.
//!
//! Places are taken from the bottom, so a reader only visits as many as there were labelled threads
//! at once. A thread that finds no place has no labels for other threads, and is counted as lost;
//! its samples have labels.

use std::cell::Cell;
use std::ffi::c_void;

use plimsoll_sys::os::fork::{Table, join};

use plimsoll_sys::os;
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::primitives::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::Labels;
use crate::fork::Order;

/// Maximum number of threads whose labels are visible to others.
const PLACES: usize = 1 << 14;

/// Each place has a separate cache line, because its thread writes to it at each poll of a task.
#[repr(align(64))]
struct Entry {
    /// The system's number of the thread; 0 if the place is free.
    thread: AtomicI32,
    /// The number of the set. 0 while the place is free.
    labels: AtomicU32,
}

static TABLE: [Entry; PLACES] = [const {
    Entry {
        thread: AtomicI32::new(0),
        labels: AtomicU32::new(0),
    }
}; PLACES];

/// The number of places, from the bottom, that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The key whose destructor is [`ended`].
static KEY: Key = Key::new();

static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns the number of threads that found no place.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The calling thread's place.
#[derive(Clone, Copy)]
enum Own {
    /// The thread has had no labels so far.
    Untaken,
    At(&'static Entry),
    /// The thread found no place, or has released it.
    Never,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::Untaken) };
}

/// Registers the destructor that notices the end of threads. Called once; until then, no thread
/// takes a place.
pub fn prepare() {
    KEY.prepare(ended);
    join(&FORK);
}

static FORK: Table = Table::new(Order::ThreadLabels.rank(), after_fork_in_child);

/// Publishes the labels of the calling thread.
#[inline]
pub(super) fn publish(labels: Labels) {
    match OWN.get() {
        Own::At(place) => place.labels.store(labels.number(), Ordering::Release),
        Own::Untaken if !labels.is_empty() => take(labels),
        Own::Untaken | Own::Never => {}
    }
}

#[cold]
#[inline(never)]
fn take(labels: Labels) {
    if !KEY.is_prepared() {
        return;
    }
    let me = os::thread_id();
    let found = TABLE.iter().position(|place| {
        // Synchronizes with the last write of the previous owner.
        let thread = &place.thread;
        thread.load(Ordering::Relaxed) == 0
            && thread
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    });
    let place = found.map(|at| {
        USED.fetch_max(at + 1, Ordering::Release);
        &TABLE[at]
    });
    // SAFETY: the value is a `&'static Entry`, as the key's destructor expects.
    let noticed = place.filter(|&place| unsafe { KEY.set(std::ptr::from_ref(place).cast()) });
    let Some(noticed) = noticed else {
        // No destructor would release the place at the end: release it now.
        if let Some(place) = place {
            place.thread.store(0, Ordering::Release);
        }
        LOST.fetch_add(1, Ordering::Relaxed);
        OWN.set(Own::Never);
        return;
    };
    noticed.labels.store(labels.number(), Ordering::Release);
    OWN.set(Own::At(noticed));
}

unsafe extern "C" fn ended(place: *mut c_void) {
    // Readers do not see later labels of the thread.
    OWN.set(Own::Never);
    // SAFETY: `take` has set the value to a `&'static Entry`.
    let place = unsafe { &*place.cast::<Entry>() };
    place.labels.store(0, Ordering::Relaxed);
    place.thread.store(0, Ordering::Release);
}

/// Returns the labels of all threads that have any, with the system's numbers of these threads.
pub fn all() -> impl Iterator<Item = (i32, Labels)> {
    let used = USED.load(Ordering::Acquire);
    TABLE[..used].iter().filter_map(|place| {
        let thread = place.thread.load(Ordering::Acquire);
        let labels = Labels::of_number(place.labels.load(Ordering::Acquire));
        // Another thread writes labels here only after taking the place, which this check detects.
        let same = place.thread.load(Ordering::Relaxed) == thread;
        (thread != 0 && same && !labels.is_empty()).then_some((thread, labels))
    })
}

/// Resets the table in the child of a fork, where only the calling thread remains, under another
/// number.
fn after_fork_in_child() {
    let own = match OWN.get() {
        Own::At(place) => std::ptr::from_ref(place),
        Own::Untaken | Own::Never => std::ptr::null(),
    };
    for place in &TABLE[..USED.load(Ordering::Relaxed)] {
        if std::ptr::eq(place, own) {
            place.thread.store(os::thread_id(), Ordering::Relaxed);
        } else {
            place.labels.store(0, Ordering::Relaxed);
            place.thread.store(0, Ordering::Relaxed);
        }
    }
}
