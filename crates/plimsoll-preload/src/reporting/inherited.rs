//! The state that a forked child inherits from its parent: counts, the heap and profiles. The
//! child's report omits it.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::mem::MaybeUninit;

use plimsoll_pprof::kinds;
use plimsoll_sys::os::filter;
use plimsoll_sys::primitives::{AtomicBool, AtomicPtr, Ordering};
use plimsoll_unwind::walk_cache;

use plimsoll_core::alloc;
use plimsoll_core::alloc::counts::{HEAP, HeapDelta};
use plimsoll_core::alloc::interposition;
use plimsoll_core::single_thread;
use plimsoll_core::stack::{Baseline, CPU_TABLE, TABLE};
use plimsoll_ledger::ledger::Cut;
use plimsoll_profiles::profile::Readable as _;
use plimsoll_profiles::profile::moment::Moment;
use plimsoll_profiles::profile::reading::Reading;
use plimsoll_profiles::profile::{self, LostEvents};
use plimsoll_stats::stats::LockStats;
use plimsoll_stats::stats::{lock_stats, locks};
use plimsoll_threads::thread;

/// Counts since the process began, or since an ancestor did.
pub(super) struct Counted {
    pub(super) heap: Cut<HeapDelta>,
    pub(super) locks: LockStats,
    pub(super) lost: LostEvents,
    pub(super) threads: u64,
}

/// Blocks in use, and their bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Live {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl Live {
    pub(super) fn new(heap: &Cut<HeapDelta>) -> Self {
        // Inexact counts may lack an allocation whose free they have.
        let at_least_0 = |count: u64| (count as i64).max(0) as u64;
        Self {
            objects: at_least_0(heap.delta.live_objects()),
            bytes: at_least_0(heap.delta.live_bytes()),
        }
    }
}

/// The state of a child right after its fork.
pub(super) struct Inherited {
    pub(super) counted: Counted,
    pub(super) live: Live,
    /// The counts of all profiles but the next one.
    counts: Box<Baseline>,
    /// The profile of CPU time, which has another table, if any was recorded.
    cpu: Option<Reading>,
    /// The time of the fork.
    moment: Moment,
}

/// Points to [`PLACE`], in most cases. A null pointer in a process that was not forked from one that reports.
static INHERITED: AtomicPtr<Inherited> = AtomicPtr::new(std::ptr::null_mut());

/// The memory of the inherited state: one page, since each page that a child writes to is a page fault.
/// Children of children write to it again.
static PLACE: InheritedCell = InheritedCell(UnsafeCell::new(MaybeUninit::uninit()));

#[repr(C, align(4096))]
struct InheritedCell(UnsafeCell<MaybeUninit<Inherited>>);

const _: () = assert!(size_of::<InheritedCell>() == 4096);

// SAFETY: only `take_down` writes to it, in a process without other threads, and only reports read it. No signal
// handler interrupts a report.
unsafe impl Sync for InheritedCell {}

/// The counts of all profiles but the next one's, for the child of the next fork. Null while a thread reads
/// them, and in a child until its first fork.
static PREPARED: AtomicPtr<Baseline> = AtomicPtr::new(std::ptr::null_mut());

/// Does before a fork, once for many children, what each would do for itself otherwise. The calling thread must
/// not be counting, because a reading waits until no thread is.
pub(super) fn prepare() {
    static IS_PREPARED: AtomicBool = AtomicBool::new(false);
    // Two threads that fork at once may both do it.
    if !IS_PREPARED.load(Ordering::Relaxed) {
        prepare_memory();
        IS_PREPARED.store(true, Ordering::Relaxed);
    }
    // Another thread that is counting may be stopped.
    if single_thread::is_single_threaded() == Some(true) {
        prepare_counts();
    }
}

/// Reads the counts if there were events since the last fork.
fn prepare_counts() {
    let counts = take_prepared().filter(|counts| TABLE.is_current(counts));
    let counts = counts.unwrap_or_else(|| Box::new(TABLE.baseline()));
    let of_other_thread = PREPARED.swap(Box::into_raw(counts), Ordering::AcqRel);
    // SAFETY: as in `take_prepared`.
    drop((!of_other_thread.is_null()).then(|| unsafe { Box::from_raw(of_other_thread) }));
}

fn take_prepared() -> Option<Box<Baseline>> {
    let prepared = PREPARED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: `prepare_counts` stores boxes only, and the swap gives this one to this thread alone.
    (!prepared.is_null()).then(|| unsafe { Box::from_raw(prepared) })
}

// Not inlined: the counts would enlarge the frame on each fork.
#[cold]
#[inline(never)]
fn prepare_memory() {
    alloc::commit_for_samples();
    walk_cache::prepare();
    // A reading uses all pages of a generation's counts, and a first use is a page fault for each.
    for _generation in 0..2 {
        black_box(&Counted::read());
    }
}

/// Records the inherited state in the child of a fork, which has one thread. The peak begins anew.
pub(super) fn take_down() {
    // SAFETY: the process has one thread, which runs here and not in a report.
    let inherited = unsafe { &mut *PLACE.0.get() };
    let prepared = take_prepared().filter(|counts| TABLE.is_current(counts));
    // Filled in place, because a copy on the stack is a page fault more.
    let inherited = inherited.write(Inherited {
        counted: Counted::beside(HEAP.read_alone()),
        live: Live::default(),
        counts: prepared.unwrap_or_else(|| Box::new(TABLE.baseline())),
        cpu: None,
        moment: Moment::now(),
    });
    inherited.live = Live::new(&inherited.counted.heap);
    if let Some(library) = interposition::registered() {
        library.restart_peak(inherited.live.bytes);
    }
    TABLE.restart_peak();
    if CPU_TABLE.bytes() != 0 {
        let cpu = profile::lookup(kinds::PROFILE.name);
        inherited.cpu = cpu.map(|profile| profile.read());
    }
    // If the parent was forked, too, what its state referred to is leaked.
    INHERITED.store(inherited, Ordering::Release);
}

pub(super) fn get() -> Option<&'static Inherited> {
    // SAFETY: the pointer is null, or `take_down` filled what it points to.
    unsafe { INHERITED.load(Ordering::Acquire).as_ref() }
}

/// Returns the profile of that name, without the inherited part. Returns `None` for `threadcreate` in a child that
/// has created no thread by the C library.
pub(super) fn own_reading(
    inherited: Option<&'static Inherited>,
    name: &'static str,
) -> Option<Reading> {
    let Some(inherited) = inherited else {
        return Some(profile::lookup(name)?.read());
    };
    // The first thread was the only one after the fork.
    if name == kinds::THREADCREATE.name {
        let has_created = thread::creation::created() > inherited.counted.threads;
        return has_created.then(profile::threadcreate_without_first);
    }
    let profile = profile::lookup(name)?;
    if name == kinds::PROFILE.name {
        return Some(match &inherited.cpu {
            Some(earlier) => profile.read_since(earlier),
            None => profile.read(),
        });
    }
    let mut reading = TABLE.since(&inherited.counts, || profile.read());
    reading.duration_nanos = reading.moment.since(inherited.moment);
    Some(reading)
}

impl Counted {
    pub(super) fn read() -> Self {
        // A filter forbids the barrier that other threads would need.
        let is_alone = filter::is_restricted() && single_thread::is_single_threaded() == Some(true);
        Self::beside(match is_alone {
            true => HEAP.read_alone(),
            false => HEAP.read(),
        })
    }

    /// Returns all counts, with those of the heap as they were read.
    #[inline(always)]
    fn beside(heap: Cut<HeapDelta>) -> Self {
        Self {
            heap,
            locks: lock_stats(),
            lost: profile::lost_events(),
            threads: thread::creation::created(),
        }
    }

    /// Subtracts the counts of `earlier`. A process has one thread that it did not create.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        let less = |count: &mut u64, before: u64| *count = count.saturating_sub(before);
        self.heap.delta.subtract(&earlier.heap.delta);
        locks::subtract(&mut self.locks, &earlier.locks);
        let (lost, before) = (&mut self.lost, &earlier.lost);
        less(&mut lost.without_stack, before.without_stack);
        less(&mut lost.table_full, before.table_full);
        less(&mut lost.cut_stacks, before.cut_stacks);
        less(&mut lost.shortened_stacks, before.shortened_stacks);
        less(&mut lost.untracked, before.untracked);
        less(&mut lost.waits, before.waits);
        less(&mut lost.mappings, before.mappings);
        if earlier.threads > 0 {
            self.threads = 1 + self.threads.saturating_sub(earlier.threads);
        }
    }
}
