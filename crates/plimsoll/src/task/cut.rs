//! All tasks at one instant, without anybody waiting for it.
//!
//! A cut begins with one step: the *epoch* goes up. From then on, whoever is about to change a task
//! that is not marked with that epoch records it first, as it still is, and marks it; the reader
//! does the same with all that nobody changes. Which of them does it is settled by a
//! compare-and-swap of the mark. Tasks that are made later carry the mark from the beginning.
//!
//! So a task in the cut is as it was when the epoch went up; or rather, as nobody could have known
//! it not to be. Somebody who looked at the epoch just before it went up may change a task just
//! after, and it depends on the reader's haste whether that is in the cut. But whatever follows
//! from that change looks at the epoch later, and is not: a cut has no effect without its cause.
//!
//! Who changes a task loads the epoch, and then stores. The reader makes the two be seen in that
//! order with a fence in all threads ([`membarrier`]), so nobody else needs one.

use std::ptr;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicPtr;

use super::slab::SLAB;
use super::slot::{Seen, Slot};
use crate::os::syscall::call3;
use crate::os::{membarrier, region, thread_place};
use crate::primitives::{AtomicU32, AtomicUsize, Backoff, Mutex, Ordering, fence, light_barrier};

/// How many cuts were begun.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// The epoch in which records are accepted from others than the reader; 0 if they are not.
static OPEN: AtomicU32 = AtomicU32::new(0);

/// Where they put them.
static RECORDS: AtomicPtr<Seen> = AtomicPtr::new(ptr::null_mut());
static CAPACITY: AtomicUsize = AtomicUsize::new(0);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// How many are in the middle of it: threads count themselves in different places.
static RECORDING: [Place; PLACES] = [const { Place(AtomicUsize::new(0)) }; PLACES];

const PLACES: usize = 16;

#[repr(align(64))]
struct Place(AtomicUsize);

static READER: Mutex<()> = Mutex::new(());

/// The epoch that new tasks are marked with.
pub(super) fn epoch() -> u32 {
    EPOCH.load(Ordering::Relaxed)
}

/// See [`Slot::about_to_change`].
#[inline]
pub(super) fn about_to_change(slot: &Slot) {
    if slot.seen.load(Ordering::Relaxed) as u32 != EPOCH.load(Ordering::Relaxed) {
        record(slot);
    }
    light_barrier();
}

#[cold]
#[inline(never)]
fn record(slot: &Slot) {
    let recording = &RECORDING[thread_place(PLACES)].0;
    recording.fetch_add(1, Ordering::SeqCst);
    let seen = slot.seen.load(Ordering::Acquire);
    let epoch = EPOCH.load(Ordering::SeqCst);
    if seen as u32 != epoch {
        let task = slot.read();
        // Before it is marked: the reader, who then takes it for recorded, waits for those who
        // found it open. Afterwards, it has seen all that there was.
        let open = OPEN.load(Ordering::SeqCst) == epoch;
        if mark(slot, seen, epoch) && open {
            if let Some(task) = task {
                put(task);
            }
        }
    }
    recording.fetch_sub(1, Ordering::Release);
}

/// Marks a task with the epoch. False if somebody else did, or if it is another task by now.
fn mark(slot: &Slot, seen: u64, epoch: u32) -> bool {
    let marked = seen & !u64::from(u32::MAX) | u64::from(epoch);
    slot.seen
        .compare_exchange(seen, marked, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

fn put(task: Seen) {
    let at = TAKEN.fetch_add(1, Ordering::Relaxed);
    if at < CAPACITY.load(Ordering::Relaxed) {
        // SAFETY: within the records, which stay while somebody is counted as recording; and the
        // place is nobody else's.
        unsafe { RECORDS.load(Ordering::Relaxed).add(at).write(task) };
    }
}

/// More tasks than there are when the cut begins can come to be recorded by others: those that were
/// made at the same time.
const SLACK: usize = 1 << 16;

/// Calls `visit` with each task that there is at one instant, in no order. Other readers wait their
/// turn. False if there was no memory for it: then it was called with none.
pub(super) fn read(mut visit: impl FnMut(&Seen)) -> bool {
    let _alone = lock();
    let capacity = SLAB.used() as usize + SLACK;
    let length = (capacity * size_of::<Seen>()).next_multiple_of(region::PAGE);
    let Some(records) = region::map(length, 0, libc::PROT_READ | libc::PROT_WRITE) else {
        return false;
    };
    RECORDS.store(records as *mut Seen, Ordering::Relaxed);
    CAPACITY.store(capacity, Ordering::Relaxed);
    TAKEN.store(0, Ordering::Relaxed);

    let epoch = match EPOCH.load(Ordering::Relaxed).wrapping_add(1) {
        // Which says that nobody is reading.
        0 => 1,
        epoch => epoch,
    };
    OPEN.store(epoch, Ordering::SeqCst);
    EPOCH.store(epoch, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if membarrier::register() != membarrier::Support::None {
        membarrier::fence_all_threads();
    }

    for number in 0..SLAB.used() {
        if !SLAB.is_there(number) {
            continue;
        }
        let slot = SLAB.slot(number);
        let seen = slot.seen.load(Ordering::Acquire);
        if seen as u32 != epoch {
            if let Some(task) = slot.read() {
                if mark(slot, seen, epoch) {
                    visit(&task);
                }
            }
        }
    }

    OPEN.store(0, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    let mut backoff = Backoff::new();
    for place in &RECORDING {
        while place.0.load(Ordering::Acquire) != 0 {
            backoff.wait();
        }
    }
    let taken = TAKEN.load(Ordering::Relaxed).min(capacity);
    for at in 0..taken {
        // SAFETY: written by now, since nobody is recording.
        visit(unsafe { &*(records as *const Seen).add(at) });
    }
    // SAFETY: mapped above; nobody writes to it any more.
    unsafe { call3(libc::SYS_munmap, records, length, 0) };
    true
}

/// Keeps readers out until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, ()> {
    READER
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// In the child of a fork: nobody is recording any more.
pub(crate) fn after_fork_in_child() {
    for place in &RECORDING {
        place.0.store(0, Ordering::Relaxed);
    }
}
