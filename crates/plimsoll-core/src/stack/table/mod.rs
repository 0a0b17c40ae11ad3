//! Stacks and the counts of their events, in separate memory.
//!
//! A *stack* is stored once; a *bucket* is a kind of event, a size, a set of labels and a stack,
//! with its counts. Both live in one reservation and are found through chains from two arrays of
//! heads, or through two small arrays that hold the first entries. They are never moved or freed, so a
//! lookup takes no lock. A compare-and-swap puts a new entry at the head of its chain. If two threads add
//! the same new stack at once, both use the first copy, and the memory of the second stays unused.
//!
//! The reservation is the bound. When it is full, events of new stacks go to their kind's *overflow
//! bucket*, so totals stay right, and are counted ([`Table::overflowed`]).
//!
//! # Cuts
//!
//! Counts are kept as in the ledger, apart from the totals until a reader folds them in. Events are
//! rare enough for atomic additions. All buckets are read at one instant. A reading contains either
//! all or none of an event's changes to a bucket: see [`super::epochs`], and for [`Kind::Heap`]
//! [`super::heap_cycle`].
//!
//! # If the process ends during a change
//!
//! The memory may be a file's, to be read after the process has ended (see `plimsoll::postmortem`).
//! It therefore contains everything needed for that, and is consistent at every instant. New
//! entries are complete before they can be found. An event changes several words; a bucket counts
//! the events that are changing it. Folding moves counts from one place to another. It first notes
//! the bucket, the slot and the resulting totals.

mod baseline;
mod entries;
mod layout;
mod readings;
#[cfg(test)]
mod tests;

use entries::{first_entry, heads};
use plimsoll_sys::os::fork::{Keeper, SignalGuard, SignalMutex, join};
use plimsoll_sys::os::region::part_of_limit;
use plimsoll_sys::os::region::{COMMIT_STEP, Part, Region};
use plimsoll_sys::primitives::AtomicPtr;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence};
use plimsoll_unwind::walk_cache::StackName;

use super::epochs::Cuts;
use super::heap_cycle::{CycleNumber, SLOTS, Stream};
use super::peak::{InUse, Peak};
use crate::fork::Order;
use crate::label::Labels;
pub use baseline::Baseline;
pub use layout::LAYOUT;
pub use readings::Record;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A sampled allocation or its free.
    Heap = 0,
    /// A sampled wait.
    Block = 1,
    /// A sampled release of a lock for which others waited.
    Mutex = 2,
    /// The creation of a thread. Its buckets count nothing; they only name stacks.
    Creation = 3,
    /// An entry of a profile that the program defined. The size is the number of the profile.
    Custom = 4,
    /// A long poll of a task. The size encodes the task's name or type.
    LongPoll = 5,
    /// The end of a sampled block. The size encodes its lifetime.
    Lifetime = 6,
    /// A mapping that the program made directly.
    #[cfg_attr(not(feature = "mmap"), allow(dead_code))]
    Mapping = 7,
    /// A sampled wait of Plimsoll's own code, or a release by it.
    SelfContention = 8,
    /// A sample of CPU time. The size names the description of a task.
    Cpu = 9,
}

pub(super) const KINDS: usize = 10;

/// Number of counts of a bucket. Their meaning depends on the kind.
pub const CELLS: usize = 6;

/// The default size of a table's address space, in bytes.
pub const DEFAULT_BOUND: usize = 64 << 20;

/// The smallest useful size, in bytes.
pub const SMALLEST_BOUND: usize = 1 << 20;

/// Entries begin at multiples of this. Their names are offsets in this unit.
pub(super) const UNIT: usize = 16;

/// The name of a bucket: its offset from the table's base, in units. 0 while there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(pub u32);

/// The table of the process.
pub static TABLE: Table = Table::new();

/// The table of CPU samples. Each interrupted instruction makes a new stack, so they would fill
/// [`TABLE`] in a long run. Opened when samples are first recorded.
pub static CPU_TABLE: Table = Table::new();

/// A table of stacks and buckets. See the module documentation.
pub struct Table {
    region: Region,
    /// Heads per array; a power of two. 0 until the table has a [`Head`].
    heads: AtomicUsize,
    /// Events that were lost because there was no table.
    lost: AtomicU64,
    cuts: Cuts,
    reader: SignalMutex<()>,
    /// The counts that readings omit; null for none.
    baseline: AtomicPtr<Baseline>,
    /// The number of events so far.
    events: AtomicU64,
}

/// The beginning of the memory; the arrays of heads follow.
#[repr(C)]
pub(super) struct Head {
    /// Bytes used from the base on.
    pub(super) used: AtomicUsize,
    pub(super) overflowed: AtomicU64,
    pub(super) overflow: [AtomicU32; KINDS],
    /// The newest bucket, apart from overflow buckets: readers follow the links to older ones.
    pub(super) newest: AtomicU32,
    /// The fold in progress: the bucket's name, 0 for none; the slot; and the resulting totals.
    pub(super) folded: AtomicU32,
    pub(super) folded_slot: AtomicU64,
    pub(super) folded_totals: [AtomicU64; CELLS],
    pub(super) peak: Peak,
}

const HEAD_BYTES: usize = size_of::<Head>().next_multiple_of(64);

/// A stack in memory; `length` return addresses follow.
#[repr(C)]
pub(super) struct StackEntry {
    hash: u64,
    next: u32,
    pub(super) length: u32,
}

/// A bucket in memory.
#[repr(C)]
pub(super) struct BucketEntry {
    pub(super) size: u64,
    /// The next bucket in its chain.
    next: AtomicU32,
    /// The bucket that was made before this one; 0 for none.
    pub(super) before: u32,
    /// The stack's name; 0 for the empty stack. A reader changes it when addresses move.
    pub(super) stack: AtomicU32,
    pub(super) labels: Labels,
    pub(super) kind: u8,
    /// The number of events that are changing the counts.
    pub(super) in_flight: AtomicU32,
    /// The folded counts. Only the reader changes them.
    pub(super) totals: [AtomicU64; CELLS],
    /// The counts not yet folded: by generation, or by the cycle of the heap profile.
    pub(super) slots: [[AtomicU64; CELLS]; SLOTS],
    pub(super) in_use: InUse,
}

const _: () =
    assert!(size_of::<BucketEntry>() == 32 + (1 + SLOTS) * CELLS * 8 + size_of::<InUse>());

/// The change of the memory in use: objects, in the units of weights, and bytes.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// By an allocation.
    More([u64; 2]),
    /// By a free.
    Fewer([u64; 2]),
}

impl BucketEntry {
    fn add(&self, slot: usize, amounts: &[(usize, u64)]) {
        for &(cell, amount) in amounts {
            self.slots[slot][cell].fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Calls `change`, which changes the counts.
    fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        // Keeps the compiler from moving changes before the count. A fence for the processor is
        // unnecessary: when it stops, its stores have taken effect in program order.
        compiler_fence(Ordering::SeqCst);
        let result = change();
        compiler_fence(Ordering::SeqCst);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

/// Keeps readers out of forks, from the next one on. Not for hooks.
pub fn join_forks() {
    static EVENTS: Keeper<SignalGuard<'static, ()>> = Keeper::new(
        Order::Stacks.rank(),
        || TABLE.lock_readers(),
        |_| TABLE.discard_writers(),
    );
    static CPU: Keeper<SignalGuard<'static, ()>> = Keeper::new(
        Order::CpuStacks.rank(),
        || CPU_TABLE.lock_readers(),
        |_| CPU_TABLE.discard_writers(),
    );
    join(&EVENTS);
    join(&CPU);
}

impl Table {
    pub const fn new() -> Self {
        Self {
            region: Region::new(),
            heads: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            cuts: Cuts::new(),
            reader: SignalMutex::new(()),
            baseline: AtomicPtr::new(std::ptr::null_mut()),
            events: AtomicU64::new(0),
        }
    }

    /// Returns the bytes that a table of that length needs from the beginning.
    pub fn bytes_at_once(&self, length: usize) -> usize {
        let entries = KINDS * size_of::<BucketEntry>().next_multiple_of(UNIT);
        (first_entry(heads(length)) + entries).next_multiple_of(COMMIT_STEP)
    }

    /// Reserves `bound` bytes, or uses `room`. Must be called at most once. Until then, and if the
    /// system refuses, every event is dropped and counted as overflowed.
    pub fn open(&self, bound: usize, room: Option<Part>) -> bool {
        let bound = bound.max(SMALLEST_BOUND);
        match room {
            Some(room) => self.region.adopt_in_file(room),
            None if self.region.reserve(bound, SMALLEST_BOUND) => {}
            None => return false,
        }
        let heads = heads(self.region.length());
        // Names are 32 bits wide. 0 names nothing: it lies within the heads.
        let first = first_entry(heads);
        if self.region.length() / UNIT > u32::MAX as usize || !self.region.commit(first) {
            return false;
        }
        // SAFETY: the memory was committed above, and zeros are a valid `Head`.
        let head = unsafe { &*(self.region.base() as *const Head) };
        head.used.store(first, Ordering::Relaxed);
        for (kind, overflow) in head.overflow.iter().enumerate() {
            // Written before `heads` opens the table to other threads.
            let Some(name) = self.take::<BucketEntry>(head, size_of::<BucketEntry>()) else {
                return false;
            };
            // SAFETY: just taken, zero as fresh memory is, and unknown to other threads.
            unsafe { (*(self.at(name) as *mut BucketEntry)).kind = kind as u8 };
            overflow.store(name, Ordering::Relaxed);
        }
        self.heads.store(heads, Ordering::Release);
        true
    }

    /// Returns the bucket for an event, made if it is new; the overflow bucket if the table is
    /// full.
    pub fn bucket(&self, kind: Kind, size: u64, labels: Labels, frames: &[usize]) -> Bucket {
        let bucket = self.bucket_if_room(kind, size, labels, frames);
        bucket.unwrap_or_else(|| {
            self.drop_event();
            let overflow = |head: &Head| head.overflow[kind as usize].load(Ordering::Relaxed);
            Bucket(self.head().map_or(0, overflow))
        })
    }

    /// Counts an event as overflowed.
    pub fn drop_event(&self) {
        let overflowed = self.head().map_or(&self.lost, |head| &head.overflowed);
        overflowed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the beginning of the memory, once the table is open.
    fn head(&self) -> Option<&'static Head> {
        // SAFETY: `open` initialized it before it set `heads`, and the memory stays mapped.
        (self.heads.load(Ordering::Acquire) != 0)
            .then(|| unsafe { &*(self.region.base() as *const Head) })
    }

    /// Does the same as [`Table::bucket`], but returns `None` instead of the overflow bucket.
    pub fn bucket_if_room(
        &self,
        kind: Kind,
        size: u64,
        labels: Labels,
        frames: &[usize],
    ) -> Option<Bucket> {
        let heads = self.heads.load(Ordering::Acquire);
        if heads == 0 {
            return None;
        }
        let stack = self.intern(heads, frames)?;
        self.find_bucket(heads, kind, size, labels, stack)
            .map(Bucket)
    }

    /// Returns the bucket of another kind and size with the labels and the stack of an existing
    /// bucket.
    pub fn bucket_beside(&self, bucket: Bucket, kind: Kind, size: u64) -> Bucket {
        let (Some(head), true) = (self.head(), bucket.0 != 0) else {
            return Bucket(0);
        };
        let overflow = |kind: usize| head.overflow[kind].load(Ordering::Relaxed);
        // SAFETY: a non-zero `Bucket` holds the name of a complete entry.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        // The stack of an overflow bucket is unknown.
        let found = if bucket.0 == overflow(usize::from(entry.kind)) {
            None
        } else {
            let heads = self.heads.load(Ordering::Acquire);
            let stack = entry.stack.load(Ordering::Acquire);
            self.find_bucket(heads, kind, size, entry.labels, stack)
        };
        Bucket(found.unwrap_or_else(|| {
            self.drop_event();
            overflow(kind as usize)
        }))
    }

    /// Returns the name of a stack, which stays valid; `None` if the stack is empty or the table is
    /// full.
    pub fn stack_name(&self, frames: &[usize]) -> Option<StackName> {
        let heads = self.heads.load(Ordering::Acquire);
        if heads == 0 || frames.is_empty() {
            return None;
        }
        let name = self.intern(heads, frames);
        if name.is_none() {
            self.drop_event();
        }
        name.map(StackName)
    }

    /// Returns the stack of that name.
    pub fn stack(&self, name: StackName) -> &'static [usize] {
        match name.0 {
            0 => &[],
            name => self.frames(name),
        }
    }

    /// Adds to the counts of a bucket that is not of [`Kind::Heap`], all in one cut.
    pub fn add(&self, bucket: Bucket, amounts: &[(usize, u64)]) {
        if bucket.0 == 0 {
            return;
        }
        let _counting = crate::deferred_signals::Counting::begin();
        // SAFETY: a non-zero `Bucket` holds the name of a complete entry.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        entry.change(|| {
            self.cuts.count(|slot| {
                self.note_event();
                entry.add(slot, amounts);
            });
        });
    }

    /// Does the same for a bucket of [`Kind::Heap`]. `in_use` is the change of its objects (in the
    /// units of weights) and bytes in use. Returns the cycle in which the event was counted.
    pub fn add_heap(
        &self,
        bucket: Bucket,
        stream: Stream,
        amounts: &[(usize, u64)],
        in_use: Change,
    ) -> CycleNumber {
        let (Some(head), true) = (self.head(), bucket.0 != 0) else {
            return CycleNumber::default();
        };
        let _counting = crate::deferred_signals::Counting::begin();
        // SAFETY: a non-zero `Bucket` holds the name of a complete entry.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        entry.change(|| {
            self.cuts.count_heap(stream, |slot| {
                self.note_event();
                entry.add(slot, amounts);
                match in_use {
                    Change::More(by) => entry.in_use.grows(&head.peak, by),
                    Change::Fewer(by) => entry.in_use.shrinks(&head.peak, by),
                }
            })
        })
    }

    /// Notes an event before it is counted, in a cut.
    #[inline]
    fn note_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the stack of a bucket; empty if the bucket has none.
    pub fn stack_of(&self, bucket: Bucket) -> &'static [usize] {
        if bucket.0 == 0 {
            return &[];
        }
        // SAFETY: a non-zero `Bucket` holds the name of a complete entry.
        let stack = unsafe { &self.entry::<BucketEntry>(bucket.0).stack };
        match stack.load(Ordering::Acquire) {
            0 => &[],
            stack => self.frames(stack),
        }
    }

    /// Returns the number of events since the process began whose stack found the table full.
    pub fn overflowed(&self) -> u64 {
        let overflowed = |head: &Head| head.overflowed.load(Ordering::Relaxed);
        self.lost.load(Ordering::Relaxed) + self.head().map_or(0, overflowed)
    }

    /// Returns the maximum memory in use according to samples, in bytes.
    pub fn most_in_use(&self) -> u64 {
        self.head().map_or(0, |head| head.peak.most_in_use())
    }

    /// Forgets earlier peaks.
    pub fn restart_peak(&self) {
        if let Some(head) = self.head() {
            head.peak.restart();
        }
    }

    /// Gives the next `bytes` of new entries their pages, and with `from_the_start` all that is in use.
    /// Adding an entry then causes no page fault. Not for hooks.
    pub fn prepare_pages(&self, bytes: usize, from_the_start: bool) {
        if let Some(head) = self.head() {
            let used = head.used.load(Ordering::Relaxed);
            let from = if from_the_start { 0 } else { used };
            self.region.commit_with_pages(from, used + bytes);
        }
    }

    /// Gives address space back that a limit of `limit` bytes would count. The table is full earlier then.
    pub fn give_back(&self, limit: usize) {
        self.region.give_back(part_of_limit(limit));
    }

    /// Returns the bytes of memory made accessible for the table.
    pub fn bytes(&self) -> usize {
        self.region.committed()
    }

    /// Returns a copy of the used memory.
    #[cfg(test)]
    pub(super) fn bytes_in_use(&self) -> Vec<u8> {
        let used = self
            .head()
            .map_or(0, |head| head.used.load(Ordering::Relaxed));
        // SAFETY: the memory is committed, and no other thread adds to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.region.base() as *const u8, used) }.to_vec()
    }

    /// Forgets threads in the middle of counting: in the child of a fork, where they no longer exist, and in a signal
    /// handler that interrupted this thread there and ends the process. Readings do not wait for them.
    pub fn discard_writers(&self) {
        self.cuts.discard_writers();
    }

    /// Notes that the memory is private and no longer a file's, in the child of a fork.
    pub fn leave_file(&self) {
        self.region.leave_file();
    }
}
