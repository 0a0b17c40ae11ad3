//! Which labels each thread has, for others to read.
//!
//! A table of fixed size, without locks. A thread takes a *place* in it when it first has labels;
//! from then on, it writes the number of its set there whenever that changes, with one store. It
//! gives the place back when it ends, in a destructor that the C library calls however it ends. So
//! nobody looks into the memory of another thread, which goes away with that.
//!
//! Places are taken from the bottom, so a reader looks at as many as there ever were threads with
//! labels at once. A thread that finds none is shown to others without labels, and counted as lost;
//! its samples have them.

use std::cell::Cell;
use std::ffi::c_void;

use super::Labels;
use crate::os;
use crate::primitives::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// How many threads can have labels that others see.
const PLACES: usize = 1 << 14;

/// What a thread writes with each poll of a task is on no cache line of another's.
#[repr(align(64))]
struct Place {
    /// The system's number of the thread; 0 if this is free.
    thread: AtomicI32,
    /// The number of the set. 0 while nobody has the place.
    labels: AtomicU32,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        thread: AtomicI32::new(0),
        labels: AtomicU32::new(0),
    }
}; PLACES];

/// How many places there are from the bottom of which any was ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The C library's number of what calls [`ended`], and 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

static LOST: AtomicU64 = AtomicU64::new(0);

/// How many threads found no place.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The calling thread's place.
#[derive(Clone, Copy)]
enum Own {
    /// It has had no labels so far.
    Untaken,
    At(&'static Place),
    /// There was none, or it has been given back.
    Never,
}

thread_local! {
    static OWN: Cell<Own> = const { Cell::new(Own::Untaken) };
}

/// Makes what notices the end of threads. Once; until then, no thread takes a place.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

/// The calling thread has these labels from here on.
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
    let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) else {
        return;
    };
    let me = os::thread_id();
    let found = TABLE.iter().position(|place| {
        // After whoever had it before has written its last.
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
    // SAFETY: a key that was made. The destructor gets what is set here.
    let noticed = place.filter(|&place| unsafe {
        libc::pthread_setspecific(key, std::ptr::from_ref(place).cast()) == 0
    });
    let Some(noticed) = noticed else {
        // Nobody would give it back at the end: so it is, now.
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

extern "C" fn ended(place: *mut c_void) {
    // What comes after this in the thread's end is seen by nobody.
    OWN.set(Own::Never);
    // SAFETY: what `take` has set, which is static.
    let place = unsafe { &*place.cast::<Place>() };
    place.labels.store(0, Ordering::Relaxed);
    place.thread.store(0, Ordering::Release);
}

/// The labels of all threads that have any, with the system's numbers of those.
pub(crate) fn all() -> impl Iterator<Item = (i32, Labels)> {
    let used = USED.load(Ordering::Acquire);
    TABLE[..used].iter().filter_map(|place| {
        let thread = place.thread.load(Ordering::Acquire);
        let labels = Labels::of_number(place.labels.load(Ordering::Acquire));
        // What another one wrote here, it wrote after it had taken the place: that is seen, too.
        let same = place.thread.load(Ordering::Relaxed) == thread;
        (thread != 0 && same && !labels.is_empty()).then_some((thread, labels))
    })
}

/// In the child of a fork: there is the calling thread, under another number.
pub(crate) fn after_fork_in_child() {
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
