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

use super::cuts::{Complete, Cuts};
use super::heap_cycle::{CycleNumber, SLOTS, Stream};
use super::peak::{InUse, Peak};
use crate::label::Labels;
use crate::os::region::{COMMIT_STEP, PAGE, Part, Region};
use crate::primitives::{
    AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, compiler_fence,
};

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
}

pub(super) const KINDS: usize = 8;

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

/// One bucket in a reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// What else is part of the key: the size of an allocation, the kind of a wait. 0 in an
    /// overflow bucket.
    pub(crate) size: u64,
    pub(crate) labels: Labels,
    /// Return addresses, leaf first. They stay where they are for good.
    pub(crate) stack: &'static [usize],
    pub(crate) cells: [u64; CELLS],
    /// Whether this is where events go that find no room.
    pub(crate) overflow: bool,
    /// What was in use when most was: objects, in the units of weights, and bytes.
    pub(crate) at_peak: [u64; 2],
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

impl Head {
    /// Moves the counts of a slot that nobody writes to any more to the totals. For the reader.
    fn fold(&self, name: u32, entry: &BucketEntry, slot: usize) {
        let frozen = &entry.slots[slot];
        // Most have nothing new.
        if frozen
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
        {
            return;
        }
        for ((noted, total), count) in self.folded_totals.iter().zip(&entry.totals).zip(frozen) {
            let sum = total
                .load(Ordering::Relaxed)
                .wrapping_add(count.load(Ordering::Relaxed));
            noted.store(sum, Ordering::Relaxed);
        }
        self.folded_slot.store(slot as u64, Ordering::Relaxed);
        // From here on, whoever finds the process gone takes what is noted.
        self.folded.store(name, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        for ((noted, total), count) in self.folded_totals.iter().zip(&entry.totals).zip(frozen) {
            total.store(noted.load(Ordering::Relaxed), Ordering::Relaxed);
            count.store(0, Ordering::Relaxed);
        }
        self.folded.store(0, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
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
            self.count_overflowed();
            let overflow = |head: &Head| head.overflow[kind as usize].load(Ordering::Relaxed);
            Bucket(self.head().map_or(0, overflow))
        })
    }

    fn count_overflowed(&self) {
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
            self.count_overflowed();
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
            self.count_overflowed();
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

    /// Reads all buckets of a kind at one instant: now, or for [`Kind::Heap`] the one that its
    /// cycle says. Other readers wait their turn; nobody else does.
    pub(crate) fn read(&self, kind: Kind, mut visit: impl FnMut(Record)) {
        let alone = self.lock_readers();
        let Some(head) = self.head() else {
            return;
        };
        if kind == Kind::Heap {
            self.cuts
                .publish_heap(|complete| self.fold(&alone, head, complete));
        } else {
            self.cuts.cut(|complete| self.fold(&alone, head, complete));
        }
        self.for_each(head, |_, entry, overflow| {
            if entry.kind == kind as u8 {
                if let Some(record) = self.record(head, entry, overflow) {
                    visit(record);
                }
            }
        });
    }

    /// A mark termination in the cycle `id` of a collector, not 0: the profile of the heap goes on
    /// by one cycle, or returns false if it cannot now. Waits for nobody, who may be stopped.
    pub(crate) fn mark_termination(&self, id: u64) -> bool {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .try_to_fold_published(|slots| self.fold_heap(&alone, head, slots));
        }
        self.cuts.heap.terminate(id)
    }

    /// The end of the cycle `id` of a collector. Returns whether there is something to be folded.
    pub(crate) fn end_of_cycle(&self, id: u64, forced: bool) -> bool {
        self.cuts.heap.end(id, forced)
    }

    /// Whether frees in the sweep of that cycle are shown one cycle before other frees.
    pub(crate) fn is_led_by(&self, id: u64) -> bool {
        self.cuts.heap.is_led_by(id)
    }

    /// The last collector has gone.
    pub(crate) fn without_collectors(&self) {
        self.cuts.heap.detach();
    }

    /// Whether the profile of the heap is that of a mark termination, not that of now.
    pub(crate) fn is_of_mark_termination(&self) -> bool {
        self.cuts.heap.state().is_deferred()
    }

    /// Folds what is ready, unless a reader is at it. Takes some nanoseconds for each bucket.
    pub(crate) fn fold_if_pending(&self) {
        if let Some((alone, head)) = self.lock_to_fold() {
            self.cuts
                .fold_published(|complete| self.fold(&alone, head, complete));
        }
    }

    /// Keeps readers out, if something is ready to be folded and none of them is at it.
    fn lock_to_fold(&self) -> Option<(MutexGuard<'_, ()>, &'static Head)> {
        let head = self.head()?;
        if !self.cuts.heap.state().is_pending() {
            return None;
        }
        match self.reader.try_lock() {
            Ok(alone) => Some((alone, head)),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some((poisoned.into_inner(), head)),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Folds those slots of all buckets.
    fn fold(&self, _alone: &MutexGuard<'_, ()>, head: &'static Head, complete: Complete) {
        self.for_each(head, |name, entry, _| {
            if entry.kind == Kind::Heap as u8 {
                for &slot in complete.heap {
                    head.fold(name, entry, slot);
                }
            } else {
                head.fold(name, entry, complete.others);
            }
        });
    }

    /// Folds those slots of the buckets of the heap profile.
    fn fold_heap(&self, _alone: &MutexGuard<'_, ()>, head: &'static Head, slots: &[usize]) {
        self.for_each(head, |name, entry, _| {
            if entry.kind == Kind::Heap as u8 {
                for &slot in slots {
                    head.fold(name, entry, slot);
                }
            }
        });
    }

    /// All buckets there are, the overflow buckets first.
    fn for_each(&self, head: &Head, mut visit: impl FnMut(u32, &'static BucketEntry, bool)) {
        for overflow in &head.overflow {
            let name = overflow.load(Ordering::Relaxed);
            // SAFETY: `open` made these.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, true);
        }
        let mut name = head.newest.load(Ordering::Acquire);
        while name != 0 {
            // SAFETY: names of buckets, which were complete when they got here.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            visit(name, entry, false);
            name = entry.before;
        }
    }

    /// What is folded of a bucket, if it ever counted anything.
    fn record(&self, head: &Head, entry: &'static BucketEntry, overflow: bool) -> Option<Record> {
        let cells = std::array::from_fn(|cell| entry.totals[cell].load(Ordering::Relaxed));
        let stack = if entry.stack == 0 {
            &[][..]
        } else {
            self.frames(entry.stack)
        };
        (cells != [0; CELLS]).then_some(Record {
            size: entry.size,
            labels: entry.labels,
            stack,
            cells,
            overflow,
            at_peak: entry.in_use.at_peak(&head.peak),
        })
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

    /// Keeps readers out until the guard is dropped.
    pub(crate) fn lock_readers(&self) -> MutexGuard<'_, ()> {
        self.reader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// In the child of a fork: forgets writers that are not there any more.
    pub(crate) fn after_fork_in_child(&self) {
        self.cuts.after_fork_in_child();
    }

    /// In the child of a fork, whose memory is its own and no file's.
    pub(crate) fn leave_file(&self) {
        self.region.leave_file();
    }

    /// The name of a stack, stored if it is new; 0 for the empty one. `None` if there is no room.
    fn intern(&self, heads: usize, frames: &[usize]) -> Option<u32> {
        if frames.is_empty() {
            return Some(0);
        }
        let hash = hash(frames);
        let memory = self.head()?;
        let head = &self.stack_heads(heads)[hash as usize & (heads - 1)];
        let same = |entry: &StackEntry, name| entry.hash == hash && self.frames(name) == frames;
        let make = || {
            let name =
                self.take::<StackEntry>(memory, size_of::<StackEntry>() + size_of_val(frames))?;
            // SAFETY: just taken, large enough for header and frames, and known to nobody else.
            unsafe {
                let entry = self.at(name) as *mut StackEntry;
                entry.write(StackEntry {
                    hash,
                    next: 0,
                    length: frames.len() as u32,
                });
                entry
                    .add(1)
                    .cast::<usize>()
                    .copy_from_nonoverlapping(frames.as_ptr(), frames.len());
            }
            Some(name)
        };
        // SAFETY: the next field of a stack that is not linked yet is nobody else's.
        let link = |name, next| unsafe { (*(self.at(name) as *mut StackEntry)).next = next };
        self.find_or_add(head, same, |entry: &StackEntry| entry.next, make, link)
    }

    fn find_bucket(
        &self,
        heads: usize,
        kind: Kind,
        size: u64,
        labels: Labels,
        stack: u32,
    ) -> Option<u32> {
        let key = (u64::from(stack) << 8 | kind as u64)
            ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(labels.number()).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let hash = key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let memory = self.head()?;
        let head = &self.bucket_heads(heads)[hash as usize & (heads - 1)];
        let same = |entry: &BucketEntry, _| {
            (entry.kind, entry.size, entry.labels, entry.stack) == (kind as u8, size, labels, stack)
        };
        let make = || {
            let name = self.take::<BucketEntry>(memory, size_of::<BucketEntry>())?;
            // SAFETY: just taken, zero as fresh memory is, and known to nobody else.
            let entry = unsafe { &mut *(self.at(name) as *mut BucketEntry) };
            (entry.kind, entry.size) = (kind as u8, size);
            (entry.labels, entry.stack) = (labels, stack);
            // Readers are to know of it before anybody finds it and counts something; if another of
            // the same key is found first, nobody ever does.
            entry.before = memory.newest.load(Ordering::Relaxed);
            while let Err(newest) = memory.newest.compare_exchange(
                entry.before,
                name,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                entry.before = newest;
            }
            Some(name)
        };
        let next = |entry: &BucketEntry| entry.next.load(Ordering::Relaxed);
        let link = |name, next| {
            // SAFETY: `make` has made it.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            entry.next.store(next, Ordering::Relaxed);
        };
        self.find_or_add(head, same, next, make, link)
    }

    /// Finds an entry of a chain, or puts a new one at its head. Lock-free: a lost race means that
    /// somebody else added one, which is looked at before trying again.
    fn find_or_add<E: 'static>(
        &self,
        head: &AtomicU32,
        same: impl Fn(&E, u32) -> bool,
        next: impl Fn(&E) -> u32,
        make: impl FnOnce() -> Option<u32>,
        link: impl Fn(u32, u32),
    ) -> Option<u32> {
        let search = |from: u32, until: u32| {
            let mut name = from;
            while name != until {
                // SAFETY: names in a chain are those of entries of its type, complete before the
                // compare-and-swap below released them.
                let entry = unsafe { self.entry::<E>(name) };
                if same(entry, name) {
                    return Some(name);
                }
                name = next(entry);
            }
            None
        };
        let mut first = head.load(Ordering::Acquire);
        if let Some(name) = search(first, 0) {
            return Some(name);
        }
        let new = make()?;
        loop {
            link(new, first);
            match head.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                Err(now) => {
                    if let Some(name) = search(now, first) {
                        return Some(name);
                    }
                    first = now;
                }
            }
        }
    }

    /// Takes fresh memory for an entry of `bytes`; its name, or `None` if there is no room.
    fn take<E>(&self, head: &Head, bytes: usize) -> Option<u32> {
        const { assert!(align_of::<E>() <= UNIT) };
        let bytes = bytes.next_multiple_of(UNIT);
        // Not a plain addition: once full, it must not creep on until it wraps.
        let add = |used: usize| (used + bytes <= self.region.length()).then_some(used + bytes);
        let at = head
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        self.region.commit(at + bytes).then_some((at / UNIT) as u32)
    }

    fn at(&self, name: u32) -> usize {
        self.region.base() + name as usize * UNIT
    }

    /// # Safety
    /// `name` is that of an entry of type `E`, complete and released.
    unsafe fn entry<E: 'static>(&self, name: u32) -> &'static E {
        // SAFETY: the caller's; the reservation is never given back.
        unsafe { &*(self.at(name) as *const E) }
    }

    fn frames(&self, name: u32) -> &'static [usize] {
        // SAFETY: the callers pass names of stacks; their frames follow the header and never
        // change.
        unsafe {
            let entry = self.entry::<StackEntry>(name);
            let frames = std::ptr::from_ref(entry).add(1).cast::<usize>();
            std::slice::from_raw_parts(frames, entry.length as usize)
        }
    }

    fn stack_heads(&self, heads: usize) -> &[AtomicU32] {
        let first = self.region.base() + HEAD_BYTES;
        // SAFETY: `open` committed two arrays of heads behind the head.
        unsafe { std::slice::from_raw_parts(first as *const AtomicU32, heads) }
    }

    fn bucket_heads(&self, heads: usize) -> &[AtomicU32] {
        let first = self.region.base() + HEAD_BYTES + heads * size_of::<u32>();
        // SAFETY: as for `stack_heads`, the second array.
        unsafe { std::slice::from_raw_parts(first as *const AtomicU32, heads) }
    }
}

/// One head for each KiB: chains of about two entries when full.
fn heads(length: usize) -> usize {
    (length / 1024).next_power_of_two() / 2
}

/// Where the first entry lies, behind so many heads.
fn first_entry(heads: usize) -> usize {
    (HEAD_BYTES + 2 * heads * size_of::<u32>()).next_multiple_of(PAGE)
}

fn hash(frames: &[usize]) -> u64 {
    let mut hash = frames.len() as u64;
    for &frame in frames {
        hash = (hash.rotate_left(5) ^ frame as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;

    use super::*;

    const NONE: Labels = Labels::NONE;

    fn read(table: &Table) -> Vec<Record> {
        let mut records = Vec::new();
        table.read(Kind::Block, |record| records.push(record));
        records
    }

    #[test]
    fn equal_keys_share_a_bucket_and_different_ones_do_not() {
        let table = Table::new();
        assert!(table.open(SMALLEST_BOUND, None));
        let a = table.bucket(Kind::Block, 16, NONE, &[1, 2, 3]);
        assert_eq!(table.bucket(Kind::Block, 16, NONE, &[1, 2, 3]), a);
        assert_ne!(table.bucket(Kind::Block, 32, NONE, &[1, 2, 3]), a);
        assert_ne!(table.bucket(Kind::Block, 16, NONE, &[1, 2]), a);
        assert_ne!(table.bucket(Kind::Block, 16, NONE, &[]), a);
        let labelled = table.bucket(Kind::Block, 16, Labels::of_number(7), &[1, 2, 3]);
        assert_ne!(labelled, a);
        table.add(a, &[(0, 2), (5, 7)]);
        table.add(a, &[(0, 1)]);
        let records = read(&table);
        assert_eq!(records.len(), 1, "only what counted something is a record");
        assert_eq!((records[0].size, records[0].stack), (16, &[1, 2, 3][..]));
        assert_eq!(records[0].cells, [3, 0, 0, 0, 0, 7]);
        table.add(a, &[(0, 1)]);
        assert_eq!(read(&table)[0].cells[0], 4);
        assert_eq!(read(&table)[0].cells[0], 4, "reading changes nothing");
        table.add(labelled, &[(0, 9)]);
        let counts = read(&table)
            .into_iter()
            .map(|record| (record.labels.number(), record.cells[0]));
        assert_eq!(counts.collect::<HashMap<_, _>>(), [(0, 4), (7, 9)].into());
    }

    #[test]
    fn when_full_totals_stay_right_in_the_overflow_bucket() {
        let table = Table::new();
        assert!(table.open(SMALLEST_BOUND, None));
        let early = table.bucket(Kind::Block, 8, NONE, &[77]);
        let events = 20_000;
        for event in 0..events {
            let bucket = table.bucket(
                Kind::Block,
                8,
                NONE,
                &[event + 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
            );
            table.add(bucket, &[(0, 1)]);
        }
        let records = read(&table);
        let overflow: Vec<_> = records.iter().filter(|record| record.overflow).collect();
        assert_eq!(overflow.len(), 1);
        assert_eq!(overflow[0].cells[0], table.overflowed());
        assert!(table.overflowed() > 0 && table.overflowed() < events as u64);
        assert_eq!(
            records.iter().map(|record| record.cells[0]).sum::<u64>(),
            events as u64
        );
        assert!(table.bytes() <= SMALLEST_BOUND);
        let other = |labels| table.bucket_if_room(Kind::Block, 8, labels, &[77]);
        assert_eq!(other(NONE), Some(early));
        // What was stored before goes on counting where it was.
        assert_eq!(table.bucket(Kind::Block, 8, NONE, &[77]), early);
    }

    #[test]
    fn a_table_that_is_not_open_loses_events_and_says_so() {
        let table = Table::new();
        let bucket = table.bucket(Kind::Block, 8, NONE, &[1]);
        table.add(bucket, &[(0, 1)]);
        assert_eq!(table.overflowed(), 1);
        assert!(read(&table).is_empty());
    }

    /// Threads that add the same stacks at once and move amounts between two buckets' cells, while
    /// a reader looks.
    #[test]
    fn racing_threads_share_buckets_and_every_reading_is_whole() {
        let table = Table::new();
        assert!(table.open(SMALLEST_BOUND, None));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..3)
                .map(|thread| {
                    let (table, stop) = (&table, &stop);
                    scope.spawn(move || {
                        let mut events = 0;
                        while !stop.load(Ordering::Relaxed) {
                            let stack = [1 + (events as usize * 7 + thread) % 500, 9];
                            let bucket = table.bucket(Kind::Block, 8, NONE, &stack);
                            table.add(bucket, &[(0, 1), (1, 1)]);
                            table.add(bucket, &[(2, 1), (3, 1)]);
                            events += 1;
                        }
                        events
                    })
                })
                .collect();
            let mut before = HashMap::new();
            let mut readings = 0;
            while readings < 300 || before.len() < 500 {
                readings += 1;
                for record in read(&table) {
                    let [a, b, c, d, ..] = record.cells;
                    assert_eq!((a, c), (b, d), "half an event");
                    assert!(c <= a, "the second event without the first");
                    let last = before.insert(record.stack.to_vec(), a).unwrap_or(0);
                    assert!(last <= a, "a count went back");
                }
            }
            stop.store(true, Ordering::Relaxed);
            let events: u64 = writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum();
            let records = read(&table);
            assert_eq!(records.len(), 500, "one bucket for each stack");
            assert_eq!(
                records.iter().map(|record| record.cells[0]).sum::<u64>(),
                events
            );
        });
    }
}
