//! The creators of the living threads.
//!
//! A lock-free table of fixed size. The creator of a thread takes an entry, in a hook. A destructor
//! that the C library calls at every kind of thread end releases it. Threads that find the table
//! full, and threads from before [`prepare`], have no entry.

use std::ffi::c_void;

use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::os;
use plimsoll_sys::os::fork::{Table, join};
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::primitives::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;
use plimsoll_core::label::Labels;
use plimsoll_core::stack::{self, Bucket, Kind, Start, TABLE};

/// Maximum number of threads that can be known at once.
const PLACES: usize = 1 << 14;

/// The creation of a thread.
#[cfg_attr(not(feature = "interpose"), allow(dead_code))]
pub struct CreatedThread {
    /// The thread's number; 0 if the entry is free, [`UNBORN`] until the thread runs.
    thread: AtomicI32,
    /// The number of the creator.
    by: AtomicI32,
    /// The number of the bucket that holds the creator's stack.
    bucket: AtomicU32,
    /// Whether it is a thread of Plimsoll: its creator was inside an internal scope.
    is_own: AtomicBool,
    /// The new thread's function and argument, which its creator stores here.
    start: [AtomicUsize; 2],
}

const UNBORN: i32 = -1;

impl CreatedThread {
    const fn none() -> Self {
        Self {
            thread: AtomicI32::new(0),
            by: AtomicI32::new(0),
            bucket: AtomicU32::new(0),
            is_own: AtomicBool::new(false),
            start: [const { AtomicUsize::new(0) }; 2],
        }
    }
}

static BIRTHS: Forgotten<[CreatedThread; PLACES]> =
    Forgotten::new([const { CreatedThread::none() }; PLACES]);

/// A copy of the forking thread's entry. The forking thread holds the locks of [`plimsoll_core::fork`].
static OF_FORKING: CreatedThread = CreatedThread::none();

/// The index at which the search for a free entry begins.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The number of entries up to the last that was ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The number of threads that the program has created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of threads that the program has created or tried to create, where creations
/// are seen. The first thread counts as one.
pub fn created() -> u64 {
    1 + CREATED.load(Ordering::Relaxed)
}

/// The key whose destructor is [`ended`].
static KEY: Key = Key::new();

/// Registers the destructor that notices the end of threads. Called once, before the first entry.
pub fn prepare() {
    KEY.prepare(ended);
    BIRTHS.prepare();
    join(&FORK);
}

static FORK: Table = Table {
    hold: before_fork,
    ..Table::new(Order::Threads.rank(), after_fork_in_child)
};

unsafe extern "C" fn ended(birth: *mut c_void) {
    // SAFETY: `begin` has set the value to a `&'static CreatedThread`.
    unsafe { &*birth.cast::<CreatedThread>() }.release();
}

/// Enters that the calling thread, with this `stack`, is about to create a thread. Returns `None`
/// if the table is full. For hooks.
pub fn enter(stack: Start) -> Option<&'static CreatedThread> {
    if !KEY.is_prepared() {
        return None;
    }
    let is_own = internal_scope::is_inside();
    if !is_own {
        CREATED.fetch_add(1, Ordering::Relaxed);
    }
    let first = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let index = (0..PLACES)
        .map(|offset| (first + offset) % PLACES)
        .find(|&index| {
            let thread = &BIRTHS[index].thread;
            let taken = thread.compare_exchange(0, UNBORN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        })?;
    let birth = &BIRTHS[index];
    // A reader that sees one of these values sees that the entry was taken: see `all`.
    fence(Ordering::Release);
    USED.fetch_max(index + 1, Ordering::Relaxed);
    birth.by.store(os::thread_id(), Ordering::Relaxed);
    birth.is_own.store(is_own, Ordering::Relaxed);
    // The bucket only stores the stack.
    let Bucket(bucket) = stack::site_from(Kind::Creation, 0, Labels::NONE, stack);
    birth.bucket.store(bucket, Ordering::Relaxed);
    Some(birth)
}

impl CreatedThread {
    /// Enters the calling thread as the one that was created.
    pub fn begin(&'static self) {
        // SAFETY: the value is a `&'static CreatedThread`, as the key's destructor expects.
        if !unsafe { KEY.set(std::ptr::from_ref(self).cast()) } {
            // No destructor would release the entry: it stays unborn, and the place is lost.
            return;
        }
        self.thread.store(os::thread_id(), Ordering::Release);
    }

    /// Returns whether the thread is Plimsoll's.
    #[cfg(feature = "interpose")]
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Stores the function and argument of the new thread.
    #[cfg(feature = "interpose")]
    pub fn set_start(&self, start: [usize; 2]) {
        for (word, start) in self.start.iter().zip(start) {
            word.store(start, Ordering::Relaxed);
        }
    }

    /// Returns the address of the stored function and argument. They stay until the thread has
    /// ended.
    #[cfg(feature = "interpose")]
    pub fn start(&self) -> *const [AtomicUsize; 2] {
        &raw const self.start
    }

    /// Copies all fields of another entry.
    fn copy(&self, other: &Self) {
        let Self {
            thread,
            by,
            bucket,
            is_own,
            start,
        } = self;
        thread.store(other.thread.load(Ordering::Relaxed), Ordering::Relaxed);
        by.store(other.by.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(other.bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        is_own.store(other.is_own.load(Ordering::Relaxed), Ordering::Relaxed);
        for (word, other) in start.iter().zip(&other.start) {
            word.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Frees the entry: the thread was not created, or has ended.
    pub fn release(&self) {
        self.thread.store(0, Ordering::Release);
    }
}

/// The creator of a thread, and the place of the creation.
#[derive(Clone, Copy, Debug)]
pub struct Creator {
    /// The system's number of the thread.
    pub id: i32,
    /// Return addresses, leaf first.
    pub frames: &'static [usize],
}

/// Returns the entries up to the last that was ever taken. The memory of the others stays untouched.
fn used() -> &'static [CreatedThread] {
    &BIRTHS[..USED.load(Ordering::Relaxed)]
}

/// Returns all known threads, each with its creator.
pub fn all() -> impl Iterator<Item = (i32, Creator)> {
    used().iter().filter_map(|birth| {
        let thread = birth.thread.load(Ordering::Acquire);
        if thread <= 0 {
            return None;
        }
        let creator = Creator {
            id: birth.by.load(Ordering::Relaxed),
            frames: TABLE.stack_of(Bucket(birth.bucket.load(Ordering::Relaxed))),
        };
        // If the entry changed hands meanwhile, the values belong to two threads.
        fence(Ordering::Acquire);
        let same = birth.thread.load(Ordering::Acquire) == thread;
        same.then_some((thread, creator))
    })
}

/// Returns the entry of the calling thread, if any.
fn own() -> Option<&'static CreatedThread> {
    // SAFETY: the key's values are `&'static CreatedThread` or null pointers.
    unsafe { KEY.get().cast::<CreatedThread>().as_ref() }
}

/// Keeps the calling thread's entry for the child of a fork.
fn before_fork() {
    if let Some(own) = own() {
        OF_FORKING.copy(own);
    }
}

/// Resets the table in the child of a fork, where only the calling thread remains, under another
/// number.
fn after_fork_in_child() {
    let own = own();
    if !BIRTHS.is_forgotten() {
        let known = |birth: &&CreatedThread| birth.thread.load(Ordering::Relaxed) != 0;
        for birth in used().iter().filter(known) {
            birth.release();
        }
    }
    if let Some(own) = own {
        own.copy(&OF_FORKING);
        own.thread.store(os::thread_id(), Ordering::Relaxed);
    }
}
