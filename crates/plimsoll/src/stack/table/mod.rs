//! Stacks and the counts of events that happened at them, in memory of their own.
//!
//! A *stack* is stored once; a *bucket* is a kind of event, a size, a set of labels and a stack,
//! with its counts.
//! Both live in one reservation, are found through chains from two arrays of heads, and are never
//! moved or freed, so looking one up takes no lock; a new one is put at the head of its chain with
//! a compare-and-swap. If two threads come with the same new stack at once, one finds the other's
//! and its own copy is lost space.
//!
//! The reservation is the bound. When it is full, events of new stacks go to their kind's *overflow
//! bucket*, so totals stay right, and are counted ([`Table::overflowed`]).
//!
//! # Cuts
//!
//! Counts are kept as in the ledger, apart from the totals until a reader folds them in: events are
//! rare enough for atomic additions. All buckets are read at one instant, and what an event changes
//! in a bucket is in a reading as a whole or not at all: see [`super::cuts`], and for those of
//! [`Kind::Heap`] [`super::heap_cycle`].
//!
//! # If the process ends in the middle of it
//!
//! The memory may be a file's, to be read when the process is gone (see [`crate::postmortem`]): so
//! everything that is needed for that is in it, and right at every instant. New entries are
//! complete before they can be found. What an event changes are several words; a bucket says how
//! many events are changing it. Folding moves counts from one place to another: where that is at is
//! noted first, with what comes of it.

mod entries;
mod readings;
#[cfg(test)]
mod tests;

use super::cuts::Cuts;
use super::heap_cycle::{CycleNumber, SLOTS, Stream};
use super::peak::{InUse, Peak};
use crate::label::Labels;
use crate::os::region::{COMMIT_STEP, Part, Region};
use crate::primitives::{AtomicU32, AtomicU64, AtomicUsize, Mutex, Ordering, compiler_fence};
use entries::{first_entry, heads};
pub(crate) use readings::Record;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A sampled allocation or its free.
    Heap = 0,
    /// A sampled wait.
    Block = 1,
    /// A sampled release of a lock that others waited for.
    Mutex = 2,
    /// The creation of a thread. Nothing is counted; the buckets are names for stacks.
    Birth = 3,
    /// An entry of a profile of the program's own. The size is the number of the profile.
    Custom = 4,
    /// A long poll of a task. The size says of which kind.
    LongPoll = 5,
    /// The end of a sampled block. The size says how long it lived.
    Lifetime = 6,
    /// A mapping of the program's own.
    #[cfg_attr(not(feature = "mmap"), allow(dead_code))]
    Mapping = 7,
    /// A sampled wait of Plimsoll's own code, or a release by it.
    SelfContention = 8,
}

pub(super) const KINDS: usize = 9;

/// Counts of a bucket; what each means is the kind's affair.
pub(crate) const CELLS: usize = 6;

/// The bytes of address space a table takes unless told otherwise.
pub(crate) const DEFAULT_BOUND: usize = 64 << 20;

/// The least that is of use.
pub(crate) const SMALLEST_BOUND: usize = 1 << 20;

/// Entries begin on multiples of this, and are named by how many come before.
pub(super) const UNIT: usize = 16;

/// The name of a bucket: where it lies, in units from the table's base. 0 while there is no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket(pub(crate) u32);

/// The name of a stack, as that of a [`Bucket`]; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StackName(pub(crate) u32);

/// The table of the process.
pub(crate) static TABLE: Table = Table::new();

/// See the module documentation.
pub(crate) struct Table {
    region: Region,
    /// Heads per array; a power of two. 0 until there is a [`Head`].
    heads: AtomicUsize,
    /// Events that there was no table for.
    lost: AtomicU64,
    cuts: Cuts,
    reader: Mutex<()>,
}

/// What the memory begins with; the arrays of heads come next.
#[repr(C)]
pub(super) struct Head {
    /// Bytes used from the bottom.
    pub(super) used: AtomicUsize,
    pub(super) overflowed: AtomicU64,
    pub(super) overflow: [AtomicU32; KINDS],
    /// The newest bucket, apart from those: readers go from one to the one before.
    pub(super) newest: AtomicU32,
    /// What is being folded: the bucket's name, 0 for none; which slot; and what the totals come
    /// to.
    pub(super) folded: AtomicU32,
    pub(super) folded_slot: AtomicU64,
    pub(super) folded_totals: [AtomicU64; CELLS],
    pub(super) peak: Peak,
}

/// What the memory is made of, in numbers, for those who have to know.
pub(crate) const SHAPE: [usize; 4] = [size_of::<BucketEntry>(), CELLS, SLOTS, HEAD_BYTES];

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
    /// The next in its chain.
    next: AtomicU32,
    /// The bucket that was made before; 0 for none.
    pub(super) before: u32,
    /// The stack's name; 0 for the empty one.
    pub(super) stack: u32,
    pub(super) labels: Labels,
    pub(super) kind: u8,
    /// How many are changing its counts at this moment.
    pub(super) in_flight: AtomicU32,
    /// What was folded: changed by the reader alone.
    pub(super) totals: [AtomicU64; CELLS],
    /// What was not: by generation, or by the cycle of the heap profile.
    pub(super) slots: [[AtomicU64; CELLS]; SLOTS],
    pub(super) in_use: InUse,
}

const _: () =
    assert!(size_of::<BucketEntry>() == 32 + (1 + SLOTS) * CELLS * 8 + size_of::<InUse>());

/// How what is in use changes: objects, in the units of weights, and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    More([u64; 2]),
    Fewer([u64; 2]),
}

impl BucketEntry {
    fn add(&self, slot: usize, amounts: &[(usize, u64)]) {
        for &(cell, amount) in amounts {
            self.slots[slot][cell].fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Calls `change`, which changes its counts.
    fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        // Nothing is to be changed before it is said, as far as the compiler goes; a processor
        // that stops has carried out what it did in that order.
        compiler_fence(Ordering::SeqCst);
        let result = change();
        compiler_fence(Ordering::SeqCst);
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        result
    }
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self {
            region: Region::new(),
            heads: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            cuts: Cuts::new(),
            reader: Mutex::new(()),
        }
    }

    /// Bytes that are needed from the beginning on, of a table of that length.
    pub(crate) fn bytes_at_once(&self, length: usize) -> usize {
        let entries = KINDS * size_of::<BucketEntry>().next_multiple_of(UNIT);
        (first_entry(heads(length)) + entries).next_multiple_of(COMMIT_STEP)
    }

    /// Reserves `bound` bytes, or takes `room`. To be called once; until then, and if the system
    /// refuses, every event is dropped and counted as overflowed.
    pub(crate) fn open(&self, bound: usize, room: Option<Part>) -> bool {
        let bound = bound.max(SMALLEST_BOUND);
        match room {
            Some(room) => self.region.adopt_in_file(room),
            None if self.region.reserve(bound, SMALLEST_BOUND) => {}
            None => return false,
        }
        let heads = heads(self.region.length());
        // Names are 32 bits of units; 0 names nothing, and lies within the heads.
        let first = first_entry(heads);
        if self.region.length() / UNIT > u32::MAX as usize || !self.region.commit(first) {
            return false;
        }
        // SAFETY: committed above, and zero, which is a value of it.
        let head = unsafe { &*(self.region.base() as *const Head) };
        head.used.store(first, Ordering::Relaxed);
        for (kind, overflow) in head.overflow.iter().enumerate() {
            // Written before `heads` opens the table to others.
            let Some(name) = self.take::<BucketEntry>(head, size_of::<BucketEntry>()) else {
                return false;
            };
            // SAFETY: just taken, zero as fresh memory is, and known to nobody else.
            unsafe { (*(self.at(name) as *mut BucketEntry)).kind = kind as u8 };
            overflow.store(name, Ordering::Relaxed);
        }
        self.heads.store(heads, Ordering::Release);
        true
    }

    /// The bucket for an event, made if it is new; the overflow bucket if there is no room.
    pub(crate) fn bucket(&self, kind: Kind, size: u64, labels: Labels, frames: &[usize]) -> Bucket {
        let bucket = self.bucket_if_room(kind, size, labels, frames);
        bucket.unwrap_or_else(|| {
            self.drop_event();
            let overflow = |head: &Head| head.overflow[kind as usize].load(Ordering::Relaxed);
            Bucket(self.head().map_or(0, overflow))
        })
    }

    /// Counts an event as overflowed.
    pub(crate) fn drop_event(&self) {
        let overflowed = self.head().map_or(&self.lost, |head| &head.overflowed);
        overflowed.fetch_add(1, Ordering::Relaxed);
    }

    /// What the memory begins with, once there is any.
    fn head(&self) -> Option<&'static Head> {
        // SAFETY: `open` has made it, and the memory stays.
        (self.heads.load(Ordering::Acquire) != 0)
            .then(|| unsafe { &*(self.region.base() as *const Head) })
    }

    /// The same for who would rather have none than the overflow bucket.
    pub(crate) fn bucket_if_room(
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

    /// The bucket of another kind and size with the labels and the stack of one that there is.
    pub(crate) fn bucket_beside(&self, bucket: Bucket, kind: Kind, size: u64) -> Bucket {
        let (Some(head), true) = (self.head(), bucket.0 != 0) else {
            return Bucket(0);
        };
        let overflow = |kind: usize| head.overflow[kind].load(Ordering::Relaxed);
        // SAFETY: a bucket's name comes from `bucket`.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        // What found no room is known of no better than that.
        let found = if bucket.0 == overflow(usize::from(entry.kind)) {
            None
        } else {
            let heads = self.heads.load(Ordering::Acquire);
            self.find_bucket(heads, kind, size, entry.labels, entry.stack)
        };
        Bucket(found.unwrap_or_else(|| {
            self.drop_event();
            overflow(kind as usize)
        }))
    }

    /// The name of a stack, for good; `None` if it is empty or there is no room.
    pub(crate) fn stack_name(&self, frames: &[usize]) -> Option<StackName> {
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

    /// The stack of that name.
    pub(crate) fn stack(&self, name: StackName) -> &'static [usize] {
        match name.0 {
            0 => &[],
            name => self.frames(name),
        }
    }

    /// Adds to the counts of a bucket that is not of [`Kind::Heap`], all in one cut.
    pub(crate) fn add(&self, bucket: Bucket, amounts: &[(usize, u64)]) {
        if bucket.0 == 0 {
            return;
        }
        #[cfg(feature = "preload")]
        let _counting = crate::preload::Counting::begin();
        // SAFETY: a bucket's name comes from `bucket`.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        entry.change(|| self.cuts.count(|slot| entry.add(slot, amounts)));
    }

    /// The same for one of [`Kind::Heap`], of which so many objects (in the units of weights) and
    /// bytes are in use more, or fewer. Returns the cycle that it was counted in.
    pub(crate) fn add_heap(
        &self,
        bucket: Bucket,
        stream: Stream,
        amounts: &[(usize, u64)],
        in_use: Change,
    ) -> CycleNumber {
        let (Some(head), true) = (self.head(), bucket.0 != 0) else {
            return CycleNumber::default();
        };
        #[cfg(feature = "preload")]
        let _counting = crate::preload::Counting::begin();
        // SAFETY: a bucket's name comes from `bucket`.
        let entry = unsafe { self.entry::<BucketEntry>(bucket.0) };
        entry.change(|| {
            let cycle = self
                .cuts
                .count_heap(stream, |slot| entry.add(slot, amounts));
            match in_use {
                Change::More(by) => entry.in_use.grows(&head.peak, by),
                Change::Fewer(by) => entry.in_use.shrinks(&head.peak, by),
            }
            cycle
        })
    }

    /// The stack of a bucket; empty if it has none.
    pub(crate) fn stack_of(&self, bucket: Bucket) -> &'static [usize] {
        if bucket.0 == 0 {
            return &[];
        }
        // SAFETY: a bucket's name comes from `bucket`.
        match unsafe { self.entry::<BucketEntry>(bucket.0) }.stack {
            0 => &[],
            stack => self.frames(stack),
        }
    }

    /// Events that found no room for their stack since the process began.
    pub(crate) fn overflowed(&self) -> u64 {
        let overflowed = |head: &Head| head.overflowed.load(Ordering::Relaxed);
        self.lost.load(Ordering::Relaxed) + self.head().map_or(0, overflowed)
    }

    /// The most that was in use, by what was sampled, in bytes.
    #[cfg(feature = "preload")]
    pub(crate) fn most_in_use(&self) -> u64 {
        self.head().map_or(0, |head| head.peak.most_in_use())
    }

    /// Forgets the peak before now: in the child of a fork.
    #[cfg(feature = "preload")]
    pub(crate) fn restart_peak(&self) {
        if let Some(head) = self.head() {
            head.peak.restart();
        }
    }

    /// Bytes of memory made accessible for the table.
    pub(crate) fn bytes(&self) -> usize {
        self.region.committed()
    }

    /// What of the memory is in use, as it is.
    #[cfg(all(test, feature = "offline"))]
    pub(super) fn bytes_in_use(&self) -> Vec<u8> {
        let used = self
            .head()
            .map_or(0, |head| head.used.load(Ordering::Relaxed));
        // SAFETY: committed, and nobody adds to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.region.base() as *const u8, used) }.to_vec()
    }

    /// In the child of a fork: forgets writers that are not there any more.
    pub(crate) fn after_fork_in_child(&self) {
        self.cuts.after_fork_in_child();
    }

    /// In the child of a fork, whose memory is its own and no file's.
    pub(crate) fn leave_file(&self) {
        self.region.leave_file();
    }
}
