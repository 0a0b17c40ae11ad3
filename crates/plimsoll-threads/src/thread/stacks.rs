//! The locations of the stacks of the process's threads.
//!
//! A lock-free table of fixed size. A thread enters its stack when it begins, where that is seen,
//! and otherwise at its first allocation. A destructor that the C library calls at every kind of
//! thread end removes it. A stack that the C library keeps for a later thread therefore has no
//! owner. The table lacks threads that do neither, and those that find it full.
//!
//! It also lacks the main thread's stack, which belongs to the system and exists as long as the
//! process.

use std::ffi::c_void;
use std::ops::Range;

use plimsoll_sys::os::fork::{Table, join};

use plimsoll_process::thread_stack;
use plimsoll_sys::os;
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::primitives::{AtomicI32, AtomicUsize, Ordering};

use plimsoll_core::alloc::process;
use plimsoll_core::fork::Order;

/// Maximum number of stacks that can be known at once.
const PLACES: usize = 1 << 14;

struct Entry {
    low: AtomicUsize,
    /// The end; 0 if the place is free, [`TAKEN`] until the rest is entered.
    high: AtomicUsize,
    thread: AtomicI32,
    /// The end of the last stack in this place.
    last: AtomicUsize,
}

const TAKEN: usize = 1;

static STACKS: [Entry; PLACES] = [const {
    Entry {
        low: AtomicUsize::new(0),
        high: AtomicUsize::new(0),
        thread: AtomicI32::new(0),
        last: AtomicUsize::new(0),
    }
}; PLACES];

/// The number of places that a thread searches for the former place of its stack.
const LOOKED_AT: usize = 512;

/// The number of places that were ever in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The index at which the search for a free place begins, so that used places are the first ones.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// The key whose destructor is [`ended`].
static KEY: Key = Key::new();

/// Registers the destructor that notices the end of threads, and learns where stacks are noted.
/// Called once, before threads exist.
pub fn prepare() {
    thread_stack::prepare();
    KEY.prepare(ended);
    process::call_at_first_allocations(crate::thread::enter);
    join(&FORK);
}

static FORK: Table = Table::new(Order::ThreadStacks.rank(), after_fork_in_child);

unsafe extern "C" fn ended(place: *mut c_void) {
    // SAFETY: `enter` has set the value to a `&'static Entry`.
    unsafe { &*place.cast::<Entry>() }.release();
}

/// Returns the place of the calling thread; a null pointer if there is none.
fn own() -> *const Entry {
    KEY.get().cast()
}

/// Enters the calling thread's stack, unless it is already there or unknown. For hooks.
pub fn enter() {
    if !KEY.is_prepared() || !own().is_null() {
        return;
    }
    let Some(stack) = thread_stack::own() else {
        return;
    };
    let Some(place) = Entry::take(stack.end) else {
        return;
    };
    // SAFETY: the value is a `&'static Entry`, as the key's destructor expects.
    if !unsafe { KEY.set(std::ptr::from_ref(place).cast()) } {
        // No destructor would remove the stack.
        return place.release();
    }
    place.thread.store(os::thread_id(), Ordering::Relaxed);
    place.low.store(stack.start, Ordering::Release);
    place.last.store(stack.end, Ordering::Relaxed);
    place.high.store(stack.end, Ordering::Release);
}

impl Entry {
    /// Takes a free place. Prefers the former place of a stack with that end, then an unused place
    /// among the first [`LOOKED_AT`]. So the addresses of former stacks stay known.
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
            // Fails if an earlier place was released meanwhile.
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
        // A place is free between two owners. So the values belong to one thread, or to two
        // successive threads whose stacks had the same end.
        (self.high.load(Ordering::Acquire) == high && low < high).then_some(Stack {
            thread,
            range: low..high,
        })
    }
}

/// The stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The system's number of the thread.
    pub thread: i32,
    /// The addresses of the stack, without the guard.
    pub range: Range<usize>,
}

/// Returns the stacks of all known threads, except the main thread's.
pub fn all() -> impl Iterator<Item = Stack> {
    let used = USED.load(Ordering::Acquire).min(PLACES);
    STACKS[..used].iter().filter_map(Entry::read)
}

/// Returns the address ranges of stacks of ended threads. The C library keeps these stacks for
/// later threads, or has unmapped them, and other mappings may be there.
pub fn past() -> impl Iterator<Item = Range<usize>> {
    let used = USED.load(Ordering::Acquire).min(PLACES);
    STACKS[..used].iter().filter_map(|place| {
        let (low, last) = (&place.low, &place.last);
        let range = low.load(Ordering::Relaxed)..last.load(Ordering::Relaxed);
        (place.high.load(Ordering::Acquire) == 0 && !range.is_empty()).then_some(range)
    })
}

/// Returns the bytes of address space of all known stacks, the main thread's included. Takes some
/// nanoseconds for each, and mostly one system call.
pub fn bytes() -> usize {
    thread_stack::main().len() + all().map(|stack| stack.range.len()).sum::<usize>()
}

/// Resets the table in the child of a fork, where only the stacks of the calling thread and the
/// main thread remain. The C library keeps the others for later threads.
fn after_fork_in_child() {
    let own = own();
    for place in &STACKS[..USED.load(Ordering::Relaxed).min(PLACES)] {
        if std::ptr::eq(place, own) {
            place.thread.store(os::thread_id(), Ordering::Relaxed);
        } else if place.high.load(Ordering::Relaxed) != 0 {
            place.release();
        }
    }
}
