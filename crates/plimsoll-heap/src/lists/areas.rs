//! The area of each thread: the kernel's, or one of the heap with a slot of the thread's own.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;

use plimsoll_sys::os::region::Region;
use plimsoll_sys::os::rseq::{self, Area};
use plimsoll_sys::os::thread_end::Key;
use plimsoll_sys::os::{cpus, membarrier};
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::arch::HAS_SEQUENCES;
use super::list::wait_for_operation;
use super::slots::{CLOSED_SLOT, SLOTS, SLOTS_IN_USE};
use crate::counted_lock::{CountedLock, Epoch};

/// The area of a thread without a slot: its slot is always closed.
struct AbsentArea(UnsafeCell<Area>);

// SAFETY: all threads may write to `sequence`, which has no meaning here; the other fields never change.
unsafe impl Sync for AbsentArea {}

impl AbsentArea {
    const fn new() -> Self {
        Self(UnsafeCell::new(Area {
            cpu_id_start: CLOSED_SLOT,
            cpu_id: -1,
            sequence: 0,
        }))
    }
}

/// The area of a thread that may receive another one.
static ABSENT: AbsentArea = AbsentArea::new();

/// The area of a thread that ends.
static ENDED: AbsentArea = AbsentArea::new();

thread_local! {
    static AREA: Cell<*mut Area> = const { Cell::new(ABSENT.0.get()) };
}

/// Returns the calling thread's area.
#[inline(always)]
pub(crate) fn area() -> *mut Area {
    AREA.with(Cell::get)
}

/// How the reader of a snapshot waits until no operation uses the open slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Slots of processors: the barrier restarts all sequences.
    Processors,
    /// Slots of threads: the reader waits for each flag.
    Threads,
    /// No lists: the system has no barrier.
    None,
}

/// The areas of threads that the kernel has none for.
pub(crate) struct Areas {
    memory: Region,
    kind: AtomicUsize,
    key: Key,
    state: CountedLock<State, 0>,
}

struct State {
    used: usize,
    /// The numbers of areas whose threads have ended.
    free: [u16; SLOTS],
    free_count: usize,
}

/// The epoch of the lock, which has no counts.
static EPOCH: Epoch = Epoch::new();

pub(crate) static AREAS: Areas = Areas {
    memory: Region::new(),
    kind: AtomicUsize::new(0),
    key: Key::new(),
    state: CountedLock::new(State {
        used: 0,
        free: [0; SLOTS],
        free_count: 0,
    }),
};

impl Areas {
    /// Decides which kind of slots the process uses. Called once, before [`attach`].
    pub(crate) fn prepare(&'static self) -> Kind {
        let support = membarrier::register();
        let processors = cpus::possible().filter(|&processors| processors <= SLOTS);
        let kind = match (support, processors) {
            (membarrier::Support::Rseq, Some(processors))
                if HAS_SEQUENCES && rseq::area().is_some() =>
            {
                let _ = SLOTS_IN_USE.use_slot(processors - 1);
                Kind::Processors
            }
            (membarrier::Support::None, _) => Kind::None,
            _ if self.memory.reserve(SLOTS * size_of::<Area>(), 4096)
                && self.key.prepare(ended) =>
            {
                Kind::Threads
            }
            _ => Kind::None,
        };
        self.kind.store(kind as usize + 1, Ordering::Release);
        kind
    }

    /// Returns the kind that [`prepare`](Self::prepare) chose.
    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Acquire) {
            1 => Kind::Processors,
            2 => Kind::Threads,
            _ => Kind::None,
        }
    }

    fn at(&self, number: usize) -> *mut Area {
        let address = self.memory.base() + number * size_of::<Area>();
        std::ptr::with_exposed_provenance_mut(address)
    }

    fn flag(&self, number: usize) -> &AtomicUsize {
        // SAFETY: the area of a used number lies in committed memory, for good; its field is accessed
        // as an atomic, here and by the operations.
        unsafe { &*(&raw const (*self.at(number)).sequence).cast() }
    }

    fn acquire(&self) -> Option<*mut Area> {
        let mut state = self.state.lock(&EPOCH);
        if state.free_count > 0 {
            state.free_count -= 1;
            let number = state.free[state.free_count];
            return Some(self.at(usize::from(number)));
        }
        let number = state.used;
        if number == SLOTS
            || !self.memory.commit((number + 1) * size_of::<Area>())
            || !SLOTS_IN_USE.use_slot(number)
        {
            return None;
        }
        state.used += 1;
        let area = self.at(number);
        // SAFETY: the area lies in committed memory, and no thread uses it yet.
        unsafe {
            area.write(Area {
                cpu_id_start: number as u32,
                cpu_id: number as i32,
                sequence: 0,
            });
        }
        Some(area)
    }

    fn release(&self, area: *mut Area) {
        let mut state = self.state.lock(&EPOCH);
        let number = (area.addr() - self.memory.base()) / size_of::<Area>();
        let place = state.free_count;
        state.free[place] = number as u16;
        state.free_count += 1;
    }

    /// Waits until each operation that announced itself before has ended. The caller has closed the
    /// lists and made all threads execute a barrier.
    pub(crate) fn wait_for_operations(&self) {
        for number in SLOTS_IN_USE.used() {
            wait_for_operation(self.flag(number));
        }
    }

    /// Acquires the lock before a fork.
    pub(crate) fn acquire_lock(&self) {
        self.state.acquire(&EPOCH);
    }

    /// Releases the lock after a fork.
    ///
    /// # Safety
    /// The caller has called [`Areas::acquire_lock`].
    pub(crate) unsafe fn release_lock(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.state.release() };
    }
}

/// Gives the calling thread an area. Returns `false` if it has one already, or must do without.
pub(crate) fn attach() -> bool {
    if area() != ABSENT.0.get() || !SLOTS_IN_USE.exist() {
        return false;
    }
    let found = match AREAS.kind() {
        Kind::Processors => rseq::area(),
        Kind::Threads => AREAS.acquire().filter(|&area| {
            // SAFETY: `ended` accepts areas of `AREAS`.
            let is_set = unsafe { AREAS.key.set(area.cast()) };
            if !is_set {
                AREAS.release(area);
            }
            is_set
        }),
        Kind::None => None,
    };
    if let Some(found) = found {
        AREA.set(found);
    }
    found.is_some()
}

/// Receives the area of a thread that ends. The lists keep their blocks for the next thread.
///
/// # Safety
/// `area` is the calling thread's.
unsafe extern "C" fn ended(area: *mut c_void) {
    AREA.set(ENDED.0.get());
    AREAS.release(area.cast());
}

/// Withdraws, in the child of a fork, the announcements of threads that exist in the parent only. Their
/// slots are not used again.
pub(crate) fn clear_after_fork() {
    if AREAS.kind() == Kind::Threads {
        for number in SLOTS_IN_USE.used() {
            AREAS.flag(number).store(0, Ordering::Release);
        }
    }
}
