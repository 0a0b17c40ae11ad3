//! Where the stacks of the process's threads are.
//!
//! A table of fixed size, without locks: a thread enters its stack when it begins, where that is
//! seen, and otherwise at its first allocation; the C library takes it out when the thread ends,
//! however it ends. A stack that the C library keeps for a next thread is so nobody's. Threads that
//! were seen by neither, and those that find no room, are not in it.
//!
//! The main thread's stack is not in it either: it is the system's, and is there as long as the
//! process.

use std::ffi::c_void;
use std::ops::Range;

use crate::os::{self, thread_stack};
use crate::primitives::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

/// How many stacks can be known at once.
const PLACES: usize = 1 << 14;

/// The C library keeps values of so many keys in the thread itself; for those of others it
/// allocates.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

struct Place {
    low: AtomicUsize,
    /// The end; 0 if this is free, [`TAKEN`] until the rest is entered.
    high: AtomicUsize,
    thread: AtomicI32,
    /// The end of the last stack that was here.
    last: AtomicUsize,
}

const TAKEN: usize = 1;

static STACKS: [Place; PLACES] = [const {
    Place {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        thread: AtomicI32::new(0),
        last: AtomicUsize::new(0),
    }
}; PLACES];

/// In so many places a thread looks whether its stack was there before.
const LOOKED_AT: usize = 512;

/// How many places were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Where to look for a free place first: so that those in use are the first ones.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// The C library's number of what calls [`ended`], and 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes what notices the end of threads, and finds out where stacks are noted. Once, before there
/// are threads.
pub(crate) fn prepare() {
    thread_stack::prepare();
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
    if failed == 0 && key < KEYS_WITHOUT_ALLOCATION {
        KEY.store(key + 1, Ordering::Release);
    }
}

extern "C" fn ended(place: *mut c_void) {
    // SAFETY: what `enter` has set, which is static.
    unsafe { &*place.cast::<Place>() }.release();
}

/// The place of the calling thread, if it has one.
fn own() -> *const Place {
    match KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: a key that was made.
        Some(key) => unsafe { libc::pthread_getspecific(key) as *const Place },
        None => std::ptr::null(),
    }
}

/// Enters the calling thread's stack, unless it is there already, or not known. For hooks.
pub(crate) fn enter() {
    let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) else {
        return;
    };
    if !own().is_null() {
        return;
    }
    let Some(stack) = thread_stack::own() else {
        return;
    };
    let Some(place) = Place::take(stack.end) else {
        return;
    };
    // SAFETY: a key that was made, of those for which nothing is allocated. The destructor gets
    // what is set here.
    let noticed = unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(place).cast()) };
    if noticed != 0 {
        // Nobody would take it out.
        return place.release();
    }
    place.thread.store(os::thread_id(), Ordering::Relaxed);
    place.low.store(stack.start, Ordering::Release);
    place.last.store(stack.end, Ordering::Relaxed);
    place.high.store(stack.end, Ordering::Release);
}

impl Place {
    /// A free place: the one where a stack with that end was before, or one that nobody had, as
    /// long as these are among the first; so that it stays known where stacks were.
    fn take(end: usize) -> Option<&'static Self> {
        let free = |at: &usize| {
            let high = &STACKS[*at].high;
            high.load(Ordering::Relaxed) == 0
                && high
                    .compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        };
        let used = USED.load(Ordering::Relaxed).min(LOOKED_AT);
        let before = (0..used).find(|&at| STACKS[at].last.load(Ordering::Relaxed) == end);
        let at = before.filter(free);
        let at = at.or_else(|| (used..LOOKED_AT).find(free));
        let at = at.or_else(|| {
            let first = FIRST.load(Ordering::Relaxed);
            let at = (first..PLACES).chain(0..first).find(free)?;
            // Unless one before it was given back meanwhile.
            let _ = FIRST.compare_exchange(first, at + 1, Ordering::Relaxed, Ordering::Relaxed);
            Some(at)
        })?;
        USED.fetch_max(at + 1, Ordering::Release);
        Some(&STACKS[at])
    }

    fn release(&self) {
        self.high.store(0, Ordering::Release);
        let offset = std::ptr::from_ref(self) as usize - STACKS.as_ptr() as usize;
        FIRST.fetch_min(offset / size_of::<Self>(), Ordering::Relaxed);
    }

    fn read(&self) -> Option<Stack> {
        let high = self.high.load(Ordering::Acquire);
        if high <= TAKEN {
            return None;
        }
        let low = self.low.load(Ordering::Acquire);
        let thread = self.thread.load(Ordering::Acquire);
        // What changes hands is free in between, so this is of one thread, or of two that had the
        // same end of their stacks, one after the other.
        (self.high.load(Ordering::Acquire) == high && low < high).then_some(Stack {
            thread,
            range: low..high,
        })
    }
}

/// The stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The system's number of the thread.
    pub(crate) thread: i32,
    /// Without the guard.
    pub(crate) range: Range<usize>,
}

/// The stacks of the threads that are known, but for the main one's.
pub(crate) fn all() -> impl Iterator<Item = Stack> {
    let used = USED.load(Ordering::Acquire).min(PLACES);
    STACKS[..used].iter().filter_map(Place::read)
}

/// Where stacks of threads were that have ended: the C library keeps them for the next ones, or has
/// given them back, and another may be there.
pub(crate) fn past() -> impl Iterator<Item = Range<usize>> {
    let used = USED.load(Ordering::Acquire).min(PLACES);
    STACKS[..used].iter().filter_map(|place| {
        let (low, last) = (&place.low, &place.last);
        let range = low.load(Ordering::Relaxed)..last.load(Ordering::Relaxed);
        (place.high.load(Ordering::Acquire) == 0 && !range.is_empty()).then_some(range)
    })
}

/// Bytes of address space of all stacks that are known, the main thread's included. Some
/// nanoseconds for each, and mostly one system call.
pub(crate) fn bytes() -> usize {
    thread_stack::main().len() + all().map(|stack| stack.range.len()).sum::<usize>()
}

/// In the child of a fork: there is the calling thread's and the main thread's. What the others had
/// is kept by the C library.
pub(crate) fn after_fork_in_child() {
    let own = own();
    for place in &STACKS[..USED.load(Ordering::Relaxed).min(PLACES)] {
        if std::ptr::eq(place, own) {
            place.thread.store(os::thread_id(), Ordering::Relaxed);
        } else if place.high.load(Ordering::Relaxed) != 0 {
            place.release();
        }
    }
}
