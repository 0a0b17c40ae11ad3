//! Who created which of the threads that live.
//!
//! A table of fixed size, without locks: entries are taken by whoever creates a thread, which a
//! hook does, and given back when the thread ends, in a destructor that the C library calls however
//! it ends. Threads that find no room, and those that were there before, have no entry.

use std::ffi::c_void;

use crate::alloc::thread::in_own_scope;
use crate::label::Labels;
use crate::os;
use crate::os::forgotten::Forgotten;
use crate::primitives::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::stack::{self, Bucket, Kind, Start, TABLE};

/// How many threads can be known at once.
const PLACES: usize = 1 << 14;

/// The creation of a thread.
#[cfg_attr(not(feature = "interpose"), allow(dead_code))]
pub(crate) struct Birth {
    /// The thread's number; 0 if this is free, [`UNBORN`] until the thread runs.
    thread: AtomicI32,
    /// The number of the one that created it.
    by: AtomicI32,
    /// The name of the bucket that has the stack of that.
    bucket: AtomicU32,
    /// What it is to do, and with what: for whoever creates it.
    start: [AtomicUsize; 2],
}

const UNBORN: i32 = -1;

impl Birth {
    const fn none() -> Self {
        Self {
            thread: AtomicI32::new(0),
            by: AtomicI32::new(0),
            bucket: AtomicU32::new(0),
            start: [const { AtomicUsize::new(0) }; 2],
        }
    }
}

static BIRTHS: Forgotten<[Birth; PLACES]> = Forgotten::new([const { Birth::none() }; PLACES]);

/// That of the thread that is forking. It has the locks of [`crate::fork`].
static OF_FORKING: Birth = Birth::none();

/// Where to look for a free place first.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// How many threads the program has created.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// How many threads the program has created, or has tried to, where that is seen; one more for the
/// first.
pub(crate) fn created() -> u64 {
    1 + CREATED.load(Ordering::Relaxed)
}

/// The C library's number of what calls [`ended`], and 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes what notices the end of threads. Once, before the first is entered.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
    BIRTHS.prepare();
}

extern "C" fn ended(birth: *mut c_void) {
    // SAFETY: what `begin` has set, which is static.
    unsafe { &*birth.cast::<Birth>() }.release();
}

/// Enters that the calling thread, which is at `stack`, is about to create one. `None` if there is
/// no room. For hooks.
pub(crate) fn enter(stack: Start) -> Option<&'static Birth> {
    if KEY.load(Ordering::Acquire) == 0 {
        return None;
    }
    if !in_own_scope() {
        CREATED.fetch_add(1, Ordering::Relaxed);
    }
    let first = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let birth = (0..PLACES)
        .map(|offset| &BIRTHS[(first + offset) % PLACES])
        .find(|birth| {
            let taken =
                birth
                    .thread
                    .compare_exchange(0, UNBORN, Ordering::Acquire, Ordering::Relaxed);
            taken.is_ok()
        })?;
    birth.by.store(os::thread_id(), Ordering::Relaxed);
    // The bucket is for the stack alone.
    let Bucket(bucket) = stack::site_from(Kind::Birth, 0, Labels::NONE, stack);
    birth.bucket.store(bucket, Ordering::Relaxed);
    Some(birth)
}

impl Birth {
    /// The thread that was created is the calling one.
    pub(crate) fn begin(&'static self) {
        let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) else {
            return;
        };
        // SAFETY: a key that was made. The destructor gets what is set here.
        let noticed = unsafe { libc::pthread_setspecific(key, std::ptr::from_ref(self).cast()) };
        if noticed != 0 {
            // Nobody would give it back: it stays unborn, and the place is lost.
            return;
        }
        self.thread.store(os::thread_id(), Ordering::Release);
    }

    /// Notes what it is to do.
    #[cfg(feature = "interpose")]
    pub(crate) fn set_start(&self, start: [usize; 2]) {
        for (word, start) in self.start.iter().zip(start) {
            word.store(start, Ordering::Relaxed);
        }
    }

    /// Where that is noted. It stays until the thread has ended.
    #[cfg(feature = "interpose")]
    pub(crate) fn start(&self) -> *const [AtomicUsize; 2] {
        &raw const self.start
    }

    /// Makes it the same as another.
    fn copy(&self, other: &Self) {
        let Self {
            thread,
            by,
            bucket,
            start,
        } = self;
        thread.store(other.thread.load(Ordering::Relaxed), Ordering::Relaxed);
        by.store(other.by.load(Ordering::Relaxed), Ordering::Relaxed);
        bucket.store(other.bucket.load(Ordering::Relaxed), Ordering::Relaxed);
        for (word, other) in start.iter().zip(&other.start) {
            word.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// There is no such thread, or no longer.
    pub(crate) fn release(&self) {
        self.thread.store(0, Ordering::Release);
    }
}

/// Who created a thread, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creator {
    pub(crate) id: i32,
    /// Return addresses, leaf first.
    pub(crate) frames: &'static [usize],
}

/// The creators of all threads that are known, with the threads they created.
pub(crate) fn all() -> impl Iterator<Item = (i32, Creator)> {
    BIRTHS.iter().filter_map(|birth| {
        let thread = birth.thread.load(Ordering::Acquire);
        if thread <= 0 {
            return None;
        }
        let creator = Creator {
            id: birth.by.load(Ordering::Relaxed),
            frames: TABLE.stack_of(Bucket(birth.bucket.load(Ordering::Relaxed))),
        };
        // If it has changed hands meanwhile, what was read is of two threads.
        let same = birth.thread.load(Ordering::Acquire) == thread;
        same.then_some((thread, creator))
    })
}

/// That of the calling thread, if there is one.
fn own() -> Option<&'static Birth> {
    let key = KEY.load(Ordering::Acquire).checked_sub(1)?;
    // SAFETY: a key that was made; what is set is static.
    unsafe { libc::pthread_getspecific(key).cast::<Birth>().as_ref() }
}

/// Before a fork: keeps what the child is to know of itself.
pub(crate) fn before_fork() {
    if let Some(own) = own() {
        OF_FORKING.copy(own);
    }
}

/// In the child of a fork: there is the calling thread, under another number.
pub(crate) fn after_fork_in_child() {
    let own = own();
    if !BIRTHS.is_forgotten() {
        let known = |birth: &&Birth| birth.thread.load(Ordering::Relaxed) != 0;
        for birth in BIRTHS.iter().filter(known) {
            birth.release();
        }
    }
    if let Some(own) = own {
        own.copy(&OF_FORKING);
        own.thread.store(os::thread_id(), Ordering::Relaxed);
    }
}
