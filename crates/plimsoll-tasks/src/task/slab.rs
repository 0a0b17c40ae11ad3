//! The allocator of slots: a reservation that only grows, and lists of released slots.

use super::slot::Slot;
#[cfg(loom)]
use model::Region;
use plimsoll_sys::os::fork::SignalMutex;
#[cfg(not(loom))]
use plimsoll_sys::os::region::Region;
use plimsoll_sys::os::thread_place;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

/// The maximum number of slots: tasks, and wakers other than their first.
const MAX_SLOTS: usize = 1 << 26;

/// The minimum number for which address space is reserved.
const MIN_SLOTS: usize = 1 << 10;

/// Lists of free slots; threads use different ones.
const LISTS: usize = if cfg!(loom) { 1 } else { 16 };

pub(super) struct Slab {
    region: Region,
    /// The number of slots that were ever in use.
    used: AtomicU32,
    free: [List; LISTS],
    lost: AtomicU64,
    /// Held while the region is reserved.
    pub(super) opening: SignalMutex<()>,
}

/// The lower half is the first free slot, plus 1. The upper half changes with every change, so a
/// list with an unchanged word is an unchanged list.
#[repr(align(64))]
struct List(AtomicU64);

/// The slots of the process.
#[cfg(not(loom))]
pub(super) static SLAB: Slab = Slab {
    region: Region::new(),
    used: AtomicU32::new(0),
    free: [const { List(AtomicU64::new(0)) }; LISTS],
    lost: AtomicU64::new(0),
    opening: SignalMutex::new(()),
};

#[cfg(loom)]
loom::lazy_static! {
    pub(super) static ref SLAB: Slab = Slab {
        region: Region::new(),
        used: AtomicU32::new(0),
        free: [List(AtomicU64::new(0))],
        lost: AtomicU64::new(0),
        opening: SignalMutex::new(()),
    };
}

impl Slab {
    /// Takes a free slot. Returns `None`, and counts the task as lost, if there is none.
    pub(super) fn take(&self) -> Option<&'static Slot> {
        let taken = self.take_free().or_else(|| self.take_new());
        if taken.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    fn take_free(&self) -> Option<&'static Slot> {
        let own = thread_place(LISTS);
        (0..LISTS).find_map(|at| self.pop(&self.free[(own + at) % LISTS].0))
    }

    fn pop(&self, list: &AtomicU64) -> Option<&'static Slot> {
        let mut head = list.load(Ordering::Acquire);
        loop {
            let first = self.slot((head as u32).checked_sub(1)?);
            let next = u64::from(first.link.load(Ordering::Relaxed));
            match list.compare_exchange_weak(
                head,
                changed(head) | next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(first),
                Err(other) => head = other,
            }
        }
    }

    fn take_new(&self) -> Option<&'static Slot> {
        if self.region.base() == 0 && !self.open() {
            return None;
        }
        let most = (self.region.length() / size_of::<Slot>()) as u32;
        let next = |used: u32| (used < most).then_some(used + 1);
        let number = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, next)
            .ok()?;
        // A slot whose memory cannot be committed is lost for good: the system is out of memory.
        self.region
            .commit((number as usize + 1) * size_of::<Slot>())
            .then(|| self.slot(number))
    }

    #[cold]
    fn open(&self) -> bool {
        #[cfg(not(loom))]
        plimsoll_sys::os::fork::join(&super::snapshot::FORK);
        let _alone = self.opening.lock();
        let (most, least) = (MAX_SLOTS * size_of::<Slot>(), MIN_SLOTS * size_of::<Slot>());
        self.region.base() != 0 || self.region.reserve(most, least)
    }

    /// Releases a slot that no task or waker uses.
    pub(super) fn give(&self, slot: &Slot) {
        let list = &self.free[thread_place(LISTS)].0;
        let number = u64::from(self.number(slot)) + 1;
        let mut head = list.load(Ordering::Relaxed);
        loop {
            slot.link.store(head as u32, Ordering::Relaxed);
            match list.compare_exchange_weak(
                head,
                changed(head) | number,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Returns the number of slots that were ever in use.
    pub(super) fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Returns a slot that was in use before.
    pub(super) fn slot(&self, number: u32) -> &'static Slot {
        let at = self.region.base() + number as usize * size_of::<Slot>();
        // SAFETY: slots that were ever in use lie in committed memory, which stays committed; all
        // zeros are a valid slot.
        unsafe { &*(at as *const Slot) }
    }

    /// Returns whether the memory of a slot is committed. For the last of the [used](Slab::used)
    /// slots, it may not be yet.
    pub(super) fn is_there(&self, number: u32) -> bool {
        (number as usize + 1) * size_of::<Slot>() <= self.region.committed()
    }

    pub(super) fn number(&self, slot: &Slot) -> u32 {
        let at = std::ptr::from_ref(slot) as usize - self.region.base();
        (at / size_of::<Slot>()) as u32
    }

    /// Returns how many times no slot was available.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Returns the bytes of memory that are committed for slots.
    pub(super) fn bytes(&self) -> usize {
        self.region.committed()
    }
}

/// Returns the upper half of the word that follows `head`.
fn changed(head: u64) -> u64 {
    (head & !u64::from(u32::MAX)).wrapping_add(1 << 32)
}

/// Memory for a few slots, for the models.
#[cfg(loom)]
mod model {
    use super::Slot;

    const SLOTS: usize = 4;

    pub(super) struct Region(Box<[Slot]>);

    impl Region {
        pub(super) fn new() -> Self {
            Self((0..SLOTS).map(|_| Slot::empty()).collect())
        }

        pub(super) fn reserve(&self, _length: usize, _least: usize) -> bool {
            true
        }

        pub(super) fn base(&self) -> usize {
            self.0.as_ptr() as usize
        }

        pub(super) fn length(&self) -> usize {
            size_of_val(&*self.0)
        }

        pub(super) fn committed(&self) -> usize {
            self.length()
        }

        pub(super) fn commit(&self, length: usize) -> bool {
            length <= self.length()
        }
    }
}
