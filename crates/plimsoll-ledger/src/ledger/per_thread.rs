//! A shard for each thread, with flags that are up while its owner writes.
//!
//! A signal handler may interrupt its thread while it writes, and count in the same shard. `active` is what
//! `increment!` raises and lowers, also in a handler. An operation on several words has a flag that `increment!` does
//! not lower, and that operations of handlers leave up. An `increment!` that is interrupted has only its last
//! instruction before it, so a cut may lack its one count until the next.

use std::marker::PhantomData;

use plimsoll_sys::primitives::{
    AtomicU32, AtomicU64, AtomicUsize, Backoff, Ordering, fence, light_barrier,
};

use super::{Delta, Generation, Shards};

/// The flags of a shard, which its owner raises before it reads the generation.
#[repr(C)]
pub struct Flags {
    /// Not 0 during any operation. In this place, the kernel's area has the running sequence.
    active: AtomicUsize,
    /// The stack frame of the operation on several words that is under way; 0 for none.
    frame: AtomicUsize,
}

impl Flags {
    #[cfg(loom)]
    fn new() -> Self {
        Self {
            active: AtomicUsize::new(0),
            frame: AtomicUsize::new(0),
        }
    }

    /// Raises the flags for an operation on several words. Returns the frame of the operation that this one interrupts
    /// as part of a signal handler; 0 for none.
    #[inline(always)]
    fn raise(&self) -> usize {
        let local = 0_u8;
        let here = &raw const local as usize;
        let before = self.frame.load(Ordering::Relaxed);
        self.frame.store(here, Ordering::Relaxed);
        self.active.store(1, Ordering::Relaxed);
        // The flags come before the generation; the reader's half of the fence is in `settle`.
        light_barrier();
        // A handler runs below the frame that it interrupts. Otherwise the frame was left by a jump out of a handler.
        // Limit: a handler on an alternate stack above the frame is taken for such a jump. A reader may then see the
        // words of the interrupted operation before all of them are written.
        if before > here { before } else { 0 }
    }

    /// Lowers the flags unless another operation is interrupted. Release: a reader that sees the flags down sees
    /// everything that was written under them.
    #[inline(always)]
    fn lower(&self, interrupted: usize) {
        self.active.store(interrupted, Ordering::Release);
        self.frame.store(interrupted, Ordering::Release);
    }

    fn is_up(&self) -> bool {
        self.frame.load(Ordering::Acquire) != 0 || self.active.load(Ordering::Acquire) != 0
    }

    /// Lowers the flags of an operation that does not go on.
    #[cfg(not(loom))]
    fn reset(&self) {
        self.lower(0);
    }
}

/// The position of a shard, held by the thread that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardIndex(u32);

#[cfg(not(loom))]
impl ShardIndex {
    /// Returns the shard to which an area belongs.
    ///
    /// # Safety
    /// The area comes from [`PerThread::area`].
    #[allow(
        dead_code,
        reason = "only where `increment` is not made of instructions"
    )]
    pub unsafe fn of_area(area: *mut plimsoll_sys::os::rseq::Area) -> Self {
        // SAFETY: `area` belongs to a shard, by this function's contract; the field is set before a
        // thread receives the shard, and never changes.
        Self(unsafe { (*area).cpu_id_start })
    }
}

/// Shards in one row, taken from the front. A thread that ends puts its shard on a list from which
/// new threads take. The counters keep their values: they are cumulative, and any thread may add to
/// them.
pub struct PerThread<D> {
    storage: Storage<D>,
    /// The number of shards that were ever assigned: the reader visits this many.
    given_out: AtomicU32,
    /// The free list: 1 + the first shard (0 for none) in the low half, a tag against reuse in the
    /// high half.
    free: AtomicU64,
}

impl<D: Delta> PerThread<D> {
    /// Takes a shard for the calling thread; `None` if all are in use.
    pub fn acquire(&self) -> Option<ShardIndex> {
        let shard = self.take();
        // A reader that was too early to see this shard has turned the generation before; from here
        // on this thread sees the turn.
        fence(Ordering::SeqCst);
        shard
    }

    fn take(&self) -> Option<ShardIndex> {
        let mut head = self.free.load(Ordering::Acquire);
        while let Some(first) = (head as u32).checked_sub(1) {
            let next = self.storage.next_free(first).load(Ordering::Relaxed);
            match self.free.compare_exchange(
                head,
                tagged(head, next),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(ShardIndex(first)),
                Err(changed) => head = changed,
            }
        }
        let mut fresh = self.given_out.load(Ordering::Relaxed);
        loop {
            // The memory comes first: the reader visits every shard below `given_out`.
            if fresh as usize >= self.storage.capacity() || !self.storage.prepare(fresh) {
                return None;
            }
            match self.given_out.compare_exchange(
                fresh,
                fresh + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(ShardIndex(fresh)),
                Err(changed) => fresh = changed,
            }
        }
    }

    /// Puts a shard on the free list. Release: the next owner continues with the words that this
    /// one wrote.
    pub fn release(&self, shard: ShardIndex) {
        let mut head = self.free.load(Ordering::Relaxed);
        loop {
            self.storage
                .next_free(shard.0)
                .store(head as u32, Ordering::Relaxed);
            let new = tagged(head, shard.0 + 1);
            match self
                .free
                .compare_exchange(head, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(changed) => head = changed,
            }
        }
    }

    /// Adds to the shard's words in the generation that `current` yields once the flag is up.
    pub fn record(
        &self,
        shard: ShardIndex,
        entries: &[(usize, u64)],
        current: impl FnOnce() -> Generation,
    ) {
        let flags = self.storage.flags(shard.0);
        let interrupted = flags.raise();
        let words = self.storage.words(shard.0, current());
        for &(word, amount) in entries {
            // One writer: a load and a store, not a read-modify-write.
            let sum = words[word].load(Ordering::Relaxed).wrapping_add(amount);
            words[word].store(sum, Ordering::Relaxed);
        }
        flags.lower(interrupted);
    }
}

impl<D: Delta> Shards<D> for PerThread<D> {
    fn settle(&self, _frozen: Generation) -> bool {
        let certain = fence_writers();
        let given_out = self.given_out.load(Ordering::Acquire);
        // In rounds over all shards: if the reader waited for one shard at a time, later threads
        // would have time to be preempted with their flag up.
        let mut seen_idle = [0u64; CAPACITY.div_ceil(64)];
        let (mut first, mut backoff) = (0, Backoff::new());
        loop {
            let mut busy = None;
            for shard in first..given_out {
                let (word, bit) = (shard as usize / 64, 1 << (shard % 64));
                if seen_idle[word] & bit != 0 {
                    continue;
                }
                if !self.storage.flags(shard).is_up() {
                    seen_idle[word] |= bit;
                } else {
                    busy = busy.or(Some(shard));
                }
            }
            match busy {
                None => return certain,
                Some(shard) => first = shard,
            }
            backoff.wait();
        }
    }

    fn add_up(&self, generation: Generation, total: &mut D) {
        for shard in 0..self.given_out.load(Ordering::Acquire) {
            for (sum, word) in total
                .words_mut()
                .iter_mut()
                .zip(self.storage.words(shard, generation))
            {
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            }
        }
    }

    fn bytes(&self) -> (usize, usize) {
        let in_use = self.given_out.load(Ordering::Relaxed) as usize * super::SHARD_BYTES;
        (in_use, self.storage.mapped().max(in_use))
    }
}

/// The writers' half of the fence, paid by the reader.
fn fence_writers() -> bool {
    #[cfg(loom)]
    {
        plimsoll_sys::primitives::fence(Ordering::SeqCst);
        true
    }
    #[cfg(not(loom))]
    plimsoll_sys::os::membarrier::fence_all_threads()
}

fn tagged(old: u64, low: u32) -> u64 {
    ((old >> 32).wrapping_add(1) << 32) | u64::from(low)
}

#[cfg(not(loom))]
mod storage {
    use plimsoll_sys::os::region::{Part, Region};
    use plimsoll_sys::os::rseq::Area;

    use super::*;
    use crate::ledger::{GENERATION_BYTES, SHARD_BYTES, TRAILER_BYTES};

    /// The maximum number of shards: a gibibyte of address space. Further threads share one.
    pub(super) const CAPACITY: usize = 1 << 17;

    /// The trailer of a shard's generation 0. It begins like the kernel's area for restartable
    /// sequences, so that `increment!` works on either.
    #[repr(C)]
    pub struct Trailer {
        /// The shard's position, where the kernel's area has the processor's number.
        pub index: AtomicU32,
        _cpu_id: u32,
        pub flags: Flags,
        next_free: AtomicU32,
    }

    const _: () = assert!(size_of::<Trailer>() <= TRAILER_BYTES);
    const _: () =
        assert!(std::mem::offset_of!(Trailer, flags) == std::mem::offset_of!(Area, sequence));

    pub(super) struct Storage<D> {
        region: Region,
        _delta: PhantomData<D>,
    }

    impl<D: Delta> Storage<D> {
        pub(super) const fn new() -> Self {
            Self {
                region: Region::new(),
                _delta: PhantomData,
            }
        }

        /// Reserves address space for the shards, or uses `room`. Returns the address of the first,
        /// or 0 if the reservation fails.
        pub(super) fn open(&self, room: Option<Part>) -> usize {
            match room {
                Some(room) => self.region.adopt_in_file(room),
                None if self.region.reserve(CAPACITY * SHARD_BYTES, 1 << 20) => {}
                None => return 0,
            }
            self.first()
        }

        fn first(&self) -> usize {
            self.region.base().next_multiple_of(SHARD_BYTES)
        }

        pub(super) fn capacity(&self) -> usize {
            // One less, for the alignment of the first shard.
            (self.region.length() / SHARD_BYTES).saturating_sub(1)
        }

        pub(super) fn mapped(&self) -> usize {
            self.region.committed()
        }

        /// Records that private memory of the process has replaced the file's memory.
        pub(super) fn leave_file(&self) {
            self.region.leave_file();
        }

        /// Initializes the shards that were in use, whose memory is fresh.
        pub(super) fn begin_anew(&self, shards: u32) {
            self.region.leave_file();
            for shard in 0..shards {
                self.trailer(shard).index.store(shard, Ordering::Relaxed);
            }
        }

        /// Makes a shard's memory usable. Several threads may call it at once.
        pub(super) fn prepare(&self, shard: u32) -> bool {
            let end = self.at(shard) + SHARD_BYTES;
            if !self.region.commit(end - self.region.base()) {
                return false;
            }
            self.trailer(shard).index.store(shard, Ordering::Relaxed);
            true
        }

        fn at(&self, shard: u32) -> usize {
            self.first() + shard as usize * SHARD_BYTES
        }

        fn trailer(&self, shard: u32) -> &Trailer {
            let address = self.at(shard) + GENERATION_BYTES - TRAILER_BYTES;
            // SAFETY: `prepare` made the memory usable before a thread received this shard; a
            // trailer consists of atomics, and is never unmapped.
            unsafe { &*(address as *const Trailer) }
        }

        pub(super) fn area(&self, shard: u32) -> *mut Area {
            std::ptr::from_ref(self.trailer(shard)).cast_mut().cast()
        }

        pub(super) fn flags(&self, shard: u32) -> &Flags {
            &self.trailer(shard).flags
        }

        pub(super) fn next_free(&self, shard: u32) -> &AtomicU32 {
            &self.trailer(shard).next_free
        }

        pub(super) fn words(&self, shard: u32, generation: Generation) -> &[AtomicU64] {
            let address = self.at(shard) + generation.index() * GENERATION_BYTES;
            // SAFETY: `prepare` made the memory usable, as for the trailer; `Delta::WORDS` words
            // fit before it.
            unsafe { std::slice::from_raw_parts(address as *const AtomicU64, D::WORDS) }
        }
    }

    impl<D: Delta> PerThread<D> {
        pub const fn new() -> Self {
            Self {
                storage: Storage::new(),
                given_out: AtomicU32::new(0),
                free: AtomicU64::new(0),
            }
        }

        /// Reserves address space, or uses `room`; returns the address of shard 0. If that fails,
        /// [`PerThread::acquire`] returns `None` to every thread.
        pub fn open(&self, room: Option<Part>) -> usize {
            self.storage.open(room)
        }

        /// Returns the maximum number of shards.
        pub fn capacity(&self) -> usize {
            self.storage.capacity()
        }

        /// Returns whether a reader waits for the owner of a shard.
        #[cfg(test)]
        pub fn is_writing(&self, shard: ShardIndex) -> bool {
            self.storage.flags(shard.0).is_up()
        }

        /// Returns the bytes that are accessible.
        pub fn committed(&self) -> usize {
            self.storage.mapped()
        }

        /// Initializes the shards in the child of a fork, where their memory is fresh.
        pub fn begin_anew(&self) {
            self.storage
                .begin_anew(self.given_out.load(Ordering::Relaxed));
        }

        /// Adds to two words of the shard that owns `area`, both in one cut: [`PerThread::record`]
        /// for a fast path that already holds the area. `current` is the ledger's.
        ///
        /// # Safety
        /// `area` comes from [`PerThread::area`] for a shard that the calling thread holds, `current`
        /// points to these shards, and both positions lie within the delta.
        #[inline(always)]
        pub unsafe fn record_pair(
            current: &AtomicUsize,
            area: *mut Area,
            entries: [(usize, u64); 2],
        ) {
            // SAFETY: the area is the head of a trailer, which consists of atomics and is never
            // unmapped.
            let trailer = unsafe { &*area.cast::<Trailer>() };
            let interrupted = trailer.flags.raise();
            let shard = trailer.index.load(Ordering::Relaxed) as usize * SHARD_BYTES;
            let words = current.load(Ordering::Relaxed) + shard;
            for (word, amount) in entries {
                // SAFETY: the position lies within the delta, which begins at `words`.
                let word = unsafe { &*((words + 8 * word) as *const AtomicU64) };
                // This thread is the only writer: a load and a store suffice.
                let sum = word.load(Ordering::Relaxed).wrapping_add(amount);
                word.store(sum, Ordering::Relaxed);
            }
            trailer.flags.lower(interrupted);
        }

        /// Records that private memory of the process has replaced the file's memory.
        pub fn leave_file(&self) {
            self.storage.leave_file();
        }

        pub fn area(&self, shard: ShardIndex) -> *mut Area {
            self.storage.area(shard.0)
        }

        /// Lowers the flags of a shard, so that readers do not wait for its thread.
        pub fn discard(&self, shard: ShardIndex) {
            self.storage.flags(shard.0).reset();
        }

        /// Releases all shards except `kept`: in the child of a fork, where no other owner exists.
        pub fn reclaim_all_but(&self, kept: Option<ShardIndex>) {
            self.free.store(0, Ordering::Relaxed);
            for shard in (0..self.given_out.load(Ordering::Relaxed)).map(ShardIndex) {
                if Some(shard) != kept {
                    self.storage.flags(shard.0).reset();
                    self.release(shard);
                }
            }
        }
    }
}

#[cfg(loom)]
mod storage {
    use super::*;

    /// The number of threads in the models.
    pub(super) const CAPACITY: usize = 3;

    struct Shard {
        flags: Flags,
        next_free: AtomicU32,
        words: [Vec<AtomicU64>; 2],
    }

    pub(super) struct Storage<D> {
        shards: Vec<Shard>,
        _delta: PhantomData<D>,
    }

    impl<D: Delta> Storage<D> {
        pub(super) fn capacity(&self) -> usize {
            CAPACITY
        }

        pub(super) fn mapped(&self) -> usize {
            0
        }

        pub(super) fn prepare(&self, _shard: u32) -> bool {
            true
        }

        pub(super) fn flags(&self, shard: u32) -> &Flags {
            &self.shards[shard as usize].flags
        }

        pub(super) fn next_free(&self, shard: u32) -> &AtomicU32 {
            &self.shards[shard as usize].next_free
        }

        pub(super) fn words(&self, shard: u32, generation: Generation) -> &[AtomicU64] {
            &self.shards[shard as usize].words[generation.index()]
        }
    }

    impl<D: Delta> PerThread<D> {
        pub fn new() -> Self {
            let words = || (0..D::WORDS).map(|_| AtomicU64::new(0)).collect();
            let shard = |_| Shard {
                flags: Flags::new(),
                next_free: AtomicU32::new(0),
                words: [words(), words()],
            };
            Self {
                storage: Storage {
                    shards: (0..CAPACITY).map(shard).collect(),
                    _delta: PhantomData,
                },
                given_out: AtomicU32::new(0),
                free: AtomicU64::new(0),
            }
        }
    }
}

#[cfg(not(loom))]
pub(super) use storage::Trailer;
use storage::{CAPACITY, Storage};
