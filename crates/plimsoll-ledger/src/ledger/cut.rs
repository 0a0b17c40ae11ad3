//! Writes to a ledger, and cuts of it.

use plimsoll_sys::primitives::{Ordering, fence};

use super::per_thread::PerThread;
use super::{
    Cut, Delta, GENERATION_BYTES, Generation, Ledger, MAX_ENTRIES, Protocol, Reader, Shards, Writer,
};

impl<D: Delta> Ledger<D> {
    #[inline]
    pub(super) fn generation(&self) -> Generation {
        Generation::new(self.current.load(Ordering::Relaxed))
    }

    /// Adds `amount` to each given word, all within one cut. Takes at most [`MAX_ENTRIES`] words,
    /// all different, as positions in the delta.
    pub fn record(&self, writer: Writer, entries: &[(usize, u64)]) {
        debug_assert!(entries.len() <= MAX_ENTRIES);
        match writer {
            #[cfg(not(loom))]
            // SAFETY: the area is the calling thread's own; `enlist` returned it under this
            // protocol.
            Writer::Sequence(area) => unsafe { self.per_cpu.record(&self.current, area, entries) },
            Writer::Shard(shard) => self.per_thread.record(shard, entries, || self.generation()),
            Writer::FencedShard(shard) => self.per_thread.record(shard, entries, || {
                fence(Ordering::SeqCst);
                self.generation()
            }),
            Writer::Shared => self.shared.record(entries, || self.generation()),
        }
    }

    /// Adds to two different words within one cut: [`Ledger::record`] for a fast path that already
    /// holds the thread's area. `entries` are positions in the delta with their amounts.
    ///
    /// # Safety
    /// `area` comes from [`Ledger::area`] for the calling thread, which has not retired since, and is
    /// not null; both positions lie within the delta.
    #[cfg(not(loom))]
    #[inline(always)]
    pub unsafe fn record_pair(
        &self,
        area: *mut plimsoll_sys::os::rseq::Area,
        entries: [(usize, u64); 2],
    ) {
        // A thread receives an area only after the ledger was opened, and the protocol never
        // changes.
        let is_per_cpu = self.state.load(Ordering::Relaxed) == Protocol::PerCpu as u32;
        // SAFETY: `area` is valid, by this function's contract. Under the per-CPU protocol it is
        // the kernel's; under all others it is the head of the trailer of the thread's shard.
        unsafe {
            if is_per_cpu {
                self.per_cpu.record_pair(&self.current, area, entries);
            } else {
                PerThread::<D>::record_pair(&self.current, area, entries);
            }
        }
    }

    /// Releases the result of [`Ledger::enlist`]; the thread must not write with it again.
    pub fn retire(&self, writer: Writer) {
        if let Writer::Shard(shard) | Writer::FencedShard(shard) = writer {
            self.per_thread.release(shard);
        }
    }

    /// Takes a cut. Writers are not delayed; other readers wait their turn. Not for signal
    /// handlers: one that interrupts a reader, or a writer under [`Protocol::PerThread`], would
    /// deadlock.
    pub fn read(&self) -> Cut<D> {
        self.cut(|shards, frozen| shards.settle(frozen))
    }

    /// Does what [`Ledger::read`] does, in a process that has no other thread. The generation does not turn,
    /// so that the thread goes on with the pages of memory that it used before.
    #[cfg(not(loom))]
    pub fn read_alone(&self) -> Cut<D> {
        // With the other protocols, the thread may have been interrupted while it counted.
        if self.protocol() != Some(Protocol::PerCpu) {
            return self.read();
        }
        let mut reader = self.reader.lock();
        self.sum_open(&mut reader);
        Self::whole(&reader, true)
    }

    /// Applies `sum`, which must be additive, to a cut; returns `None` if another reader is
    /// running. Hooks, which may have little stack, may call it if the protocol is
    /// [`Protocol::PerCpu`], under which a reader waits for threads that are counting in the shared shard alone. `is_alone` means that the process
    /// has no other thread, so that the generation need not turn.
    #[cfg(not(loom))]
    pub fn try_sum(&self, is_alone: bool, sum: impl Fn(&D) -> u64) -> Option<u64> {
        let mut reader = self.reader.try_lock()?;
        if is_alone {
            self.sum_open(&mut reader);
        } else {
            self.turn(&mut reader, |shards, frozen| shards.settle(frozen));
        }
        let [one, other] = &reader.saved;
        Some(sum(one).wrapping_add(sum(other)))
    }

    /// Sums the generation to which the only thread of the process writes, under [`Protocol::PerCpu`]. Both of
    /// the reader's sums then add up to a cut.
    #[cfg(not(loom))]
    fn sum_open(&self, reader: &mut Reader<D>) {
        let open = self.generation();
        // The next turn freezes this generation and sums it again.
        let sum = &mut reader.saved[open.index()];
        *sum = D::ZERO;
        self.shared.add_up(open, sum);
        if let Some(shards) = self.shards() {
            shards.add_up(open, sum);
        }
    }

    /// Does what [`Ledger::read`] does with its second step as an argument: tests leave that step
    /// out.
    pub(super) fn cut(&self, settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool) -> Cut<D> {
        let mut reader = self.reader.lock();
        self.cut_alone(&mut reader, settle)
    }

    pub(super) fn cut_alone(
        &self,
        reader: &mut Reader<D>,
        settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool,
    ) -> Cut<D> {
        let exact = self.turn(reader, settle);
        Self::whole(reader, exact)
    }

    /// Returns the cut to which the reader's sums add up.
    #[inline(always)]
    fn whole(reader: &Reader<D>, exact: bool) -> Cut<D> {
        // Copied once, because a delta is nearly as large as a page of the stack.
        let mut cut = Cut {
            delta: reader.saved[0],
            exact,
        };
        cut.delta.add(&reader.saved[1]);
        cut
    }

    /// Turns the generation and sums the one that this freezes: both of the reader's sums then add
    /// up to a cut. Returns whether the cut is exact.
    pub(super) fn turn(
        &self,
        reader: &mut Reader<D>,
        settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool,
    ) -> bool {
        let frozen = Generation::new(self.current.fetch_xor(GENERATION_BYTES, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        let sum = &mut reader.saved[frozen.index()];
        *sum = D::ZERO;
        self.shared.settle(frozen);
        self.shared.add_up(frozen, sum);
        let mut exact = true;
        if let Some(shards) = self.shards() {
            exact = settle(shards, frozen);
            shards.add_up(frozen, sum);
        }
        self.exactness(exact)
    }
}
