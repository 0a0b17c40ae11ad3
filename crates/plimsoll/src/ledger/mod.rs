//! Counters that many threads add to with plain stores, and that one reader cuts through at an
//! instant without stopping any of them.
//!
//! # The scheme
//!
//! What is counted is a [`Delta`]: a struct of sums. Each writer adds to a *shard* of its own, and
//! each shard holds two copies of the delta, one for each *generation*. One word,
//! [`Ledger::current`], says which generation is being written. To take a cut, the reader
//!
//! 1. turns `current` to the other generation,
//! 2. waits until no operation that saw the old one can still write to it,
//! 3. adds up the old generation over all shards, which is now *frozen*.
//!
//! ```text
//!   generation 0   ~~~~writing~~~~|------frozen------|~~~~writing~~~~
//!   generation 1   ----frozen-----|~~~~~writing~~~~~~|-----frozen----
//!                                 ^ turn             ^ turn
//! ```
//!
//! Words are cumulative and nobody ever clears them. The cut is the sum of the frozen generation
//! and of what the other one came to when it was last frozen: every operation that finished before
//! the turn is in one of the two, none that began after it is in either. So a shard can pass from a
//! thread that ended to a new one as it is, and the reader never writes where writers do.
//!
//! # Why writers need no fence
//!
//! A writer announces itself, then loads `current`; the reader stores `current`, then looks who is
//! announced. Each side's store must be seen before its load, which takes a full fence on both. The
//! reader pays for both, through `membarrier(2)`. There are two ways to announce oneself, which
//! share one instruction sequence (see [`mod@increment`]) and differ in how the reader does step 2:
//!
//! * [`PerCpu`]: a shard for each processor, and the sequence is restartable. The barrier makes
//!   whoever is inside one start over, in the new generation. The reader waits for nobody, not even
//!   for a thread that lost its processor half-way; threads need no registration and leave nothing
//!   behind.
//! * [`PerThread`]: a shard for each thread with an `active` flag in it. The reader waits until it
//!   has seen each flag down once. For systems without restartable sequences; every part of it is
//!   ordinary Rust that the models in `loom_models` check.
//!
//! Storing the generation itself as the flag would save a load and be wrong: a writer that stalls
//! between loading the generation and storing it as its flag is invisible to the reader.
//!
//! Whoever has no shard (a thread in its last moments, a process that has not set itself up yet)
//! uses the [`SharedShard`], with atomic read-modify-writes.

mod delta;
#[cfg(all(feature = "double-check", not(loom)))]
pub(crate) mod double_check;
mod gate;
#[cfg(not(loom))]
mod increment;
#[cfg(loom)]
mod loom_models;
#[cfg(not(loom))]
mod per_cpu;
mod per_thread;
#[cfg(all(feature = "offline", not(loom)))]
pub(crate) mod remains;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use delta::Delta;
pub(crate) use gate::Gate;
#[cfg(all(feature = "preload", not(loom)))]
pub(crate) use increment::add;
#[cfg(not(loom))]
pub(crate) use increment::increment;

#[cfg(not(loom))]
use per_cpu::PerCpu;
use per_thread::PerThread;
pub(crate) use per_thread::ShardIndex;
use shared::SharedShard;

use crate::primitives::{AtomicU32, AtomicUsize, Mutex, Ordering, fence};

/// Bytes of one generation of one shard: the delta, then a trailer.
pub(crate) const GENERATION_BYTES: usize = 4096;

/// Bytes of one shard: two generations.
pub(crate) const SHARD_BYTES: usize = 2 * GENERATION_BYTES;

/// Bytes at the end of a generation that are not counters.
pub(crate) const TRAILER_BYTES: usize = 64;

/// One of the two copies of a shard's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(usize);

impl Generation {
    /// The generation that a value of [`Ledger::current`] stands for: shards begin on a multiple of
    /// their size, so the generation is one bit of the address.
    #[inline]
    fn of(current: usize) -> Self {
        Self((current / GENERATION_BYTES) & 1)
    }

    /// The generation of that [`index`](Self::index).
    pub(crate) fn of_index(index: usize) -> Self {
        Self(index & 1)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0
    }

    pub(crate) fn other(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// How writers announce themselves and how the reader waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Protocol {
    /// Per-CPU shards, restartable sequences: exact, and the reader waits for nobody.
    PerCpu = 2,
    /// Per-thread shards, the reader's barrier is a system call: exact.
    PerThread = 3,
    /// Per-thread shards, a fence in every operation: exact without `membarrier`, and slower.
    Fenced = 4,
    /// Per-thread shards and no barrier at all: a cut may miss operations that are nanoseconds old.
    Skewed = 5,
}

const CLOSED: u32 = 0;
const OPENING: u32 = 1;

/// How a thread writes: fixed when it enlists, kept by the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Inside restartable sequences described in this area.
    #[cfg(not(loom))]
    Sequence(*mut crate::os::rseq::Area),
    /// Under the flag of this shard.
    Shard(ShardIndex),
    /// Under the flag of this shard, with a fence.
    FencedShard(ShardIndex),
    /// In the shard of those who have none.
    Shared,
}

/// One instant of everything counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<D> {
    pub(crate) delta: D,
    /// False only under [`Protocol::Skewed`].
    pub(crate) exact: bool,
}

/// What the two kinds of shards do for the reader.
pub(crate) trait Shards<D: Delta> {
    /// Returns when no operation that began before the turn can still write to `frozen`. The turn
    /// comes before the call in program order; the call provides both halves of the fence.
    /// False if that cannot be had for certain.
    fn settle(&self, frozen: Generation) -> bool;

    /// Adds the words of one generation of every shard to `total`.
    fn add_up(&self, generation: Generation, total: &mut D);

    /// Bytes of shards that some writer may use, and bytes mapped for shards.
    fn bytes(&self) -> (usize, usize);
}

/// Sharded counters with consistent reads; see the module documentation.
///
/// `current` is the first field and stays so: [`macro@increment`] addresses it by the name of the
/// static.
#[repr(C)]
pub(crate) struct Ledger<D: Delta> {
    /// The address of generation 0 or 1 of shard 0, which says where the shards are and which
    /// generation is being written. While the ledger is not open, the same with the address 0.
    current: AtomicUsize,
    /// `CLOSED`, `OPENING` or a [`Protocol`].
    state: AtomicU32,
    #[cfg(not(loom))]
    per_cpu: PerCpu<D>,
    per_thread: PerThread<D>,
    shared: SharedShard<D>,
    reader: Mutex<Reader<D>>,
}

/// Memory that shards are to be in: parts of a file.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) per_cpu: crate::os::region::Part,
    pub(crate) per_thread: crate::os::region::Part,
    /// Two times [`GENERATION_BYTES`], zero and accessible.
    pub(crate) shared: usize,
}

/// What the reader remembers between cuts.
pub(crate) struct Reader<D> {
    /// What each generation came to when it was last frozen.
    saved: [D; 2],
}

#[cfg(not(loom))]
impl<D: Delta> Ledger<D> {
    pub(crate) const fn new() -> Self {
        Self {
            current: AtomicUsize::new(0),
            state: AtomicU32::new(CLOSED),
            per_cpu: PerCpu::new(),
            per_thread: PerThread::new(),
            shared: SharedShard::new(),
            reader: Mutex::new(Reader {
                saved: [D::ZERO; 2],
            }),
        }
    }

    /// Sets up the shards, with `forced` or else the best protocol the system has, in `room` if
    /// there is any. Done by the first caller; whoever comes while it is under way gets `None`,
    /// and uses [`Writer::Shared`].
    pub(crate) fn open(&self, forced: Option<Protocol>, room: Option<&Room>) -> Option<Protocol> {
        use crate::os::{membarrier, rseq};
        match self
            .state
            .compare_exchange(CLOSED, OPENING, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {}
            Err(OPENING) => return None,
            Err(_) => return self.protocol(),
        }
        if let Some(room) = room {
            self.shared.place_at(room.shared);
        }
        let support = membarrier::register();
        let best = match support {
            membarrier::Support::Rseq if rseq::area().is_some() && increment::HAS_SEQUENCES => {
                Protocol::PerCpu
            }
            membarrier::Support::Rseq | membarrier::Support::Fence => Protocol::PerThread,
            membarrier::Support::None => Protocol::Skewed,
        };
        // A protocol that the system cannot carry is never taken, even if asked for.
        let wanted = match forced {
            Some(Protocol::PerCpu) | None => best,
            Some(Protocol::PerThread) if best == Protocol::Skewed => Protocol::Skewed,
            Some(other) => other,
        };
        let (protocol, base) = match wanted {
            Protocol::PerCpu => match self.per_cpu.open(room.map(|room| room.per_cpu)) {
                Some(base) => (Protocol::PerCpu, base),
                None => (
                    Protocol::PerThread,
                    self.per_thread.open(room.map(|room| room.per_thread)),
                ),
            },
            other => (
                other,
                self.per_thread.open(room.map(|room| room.per_thread)),
            ),
        };
        // The generation bit may be turned by a reader at this moment; the base is added beside it.
        self.current.fetch_add(base, Ordering::SeqCst);
        self.state.store(protocol as u32, Ordering::SeqCst);
        Some(protocol)
    }

    /// The protocol in use; `None` until [`Ledger::open`] has returned.
    pub(crate) fn protocol(&self) -> Option<Protocol> {
        Some(match self.state.load(Ordering::SeqCst) {
            2 => Protocol::PerCpu,
            3 => Protocol::PerThread,
            4 => Protocol::Fenced,
            5 => Protocol::Skewed,
            _ => return None,
        })
    }

    /// Whether a cut is exact, given what [`Shards::settle`] said of its fence.
    fn exactness(&self, fenced: bool) -> bool {
        match self.protocol() {
            // The writers fence for themselves.
            Some(Protocol::Fenced) => true,
            Some(Protocol::Skewed) => false,
            Some(Protocol::PerCpu | Protocol::PerThread) | None => fenced,
        }
    }

    /// Where the first shard begins, and how many there are room for.
    pub(crate) fn place(&self) -> (usize, usize) {
        let first = self.current.load(Ordering::SeqCst) & !(SHARD_BYTES - 1);
        let shards = match self.protocol() {
            Some(Protocol::PerCpu) => self.per_cpu.cpus(),
            Some(_) => self.per_thread.capacity(),
            None => 0,
        };
        (first, shards)
    }

    /// What was counted before there was a place for it, as words: nobody adds to that any more.
    pub(crate) fn counted_early(&self) -> D {
        self.shared.counted_early()
    }

    fn shards(&self) -> Option<&dyn Shards<D>> {
        Some(match self.protocol()? {
            Protocol::PerCpu => &self.per_cpu,
            _ => &self.per_thread,
        })
    }

    /// Gives the calling thread a way to write, to be given back with [`Ledger::retire`].
    pub(crate) fn enlist(&self) -> Writer {
        match self.protocol() {
            Some(Protocol::PerCpu) => match crate::os::rseq::area() {
                Some(area) => Writer::Sequence(area),
                None => Writer::Shared,
            },
            Some(Protocol::PerThread | Protocol::Skewed) => self
                .per_thread
                .acquire()
                .map_or(Writer::Shared, Writer::Shard),
            Some(Protocol::Fenced) => self
                .per_thread
                .acquire()
                .map_or(Writer::Shared, Writer::FencedShard),
            None => Writer::Shared,
        }
    }

    /// What [`macro@increment`] needs of a writer; null for one that has to use [`Ledger::record`].
    pub(crate) fn area(&self, writer: Writer) -> *mut crate::os::rseq::Area {
        match writer {
            Writer::Sequence(area) => area,
            Writer::Shard(shard) => self.per_thread.area(shard),
            Writer::FencedShard(_) | Writer::Shared => std::ptr::null_mut(),
        }
    }

    /// Bytes of shards in use and bytes mapped for shards.
    pub(crate) fn shard_bytes(&self) -> (usize, usize) {
        let (used, mapped) = self.shards().map_or((0, 0), |shards| shards.bytes());
        (
            used + size_of::<SharedShard<D>>(),
            mapped + size_of::<SharedShard<D>>(),
        )
    }

    /// Keeps readers out until the guard is dropped: what a fork needs, so that the child does not
    /// inherit a half-made cut.
    pub(crate) fn lock_readers(&self) -> std::sync::MutexGuard<'_, Reader<D>> {
        self.reader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Everything that is counted, while it is being changed: of no instant.
    pub(crate) fn sum_as_it_is(&self) -> D {
        fence(Ordering::SeqCst);
        let mut sum = D::ZERO;
        for generation in [0, 1].map(Generation::of_index) {
            self.shared.add_up(generation, &mut sum);
            if let Some(shards) = self.shards() {
                shards.add_up(generation, &mut sum);
            }
        }
        sum
    }

    /// Bytes that shards for all processors take.
    pub(crate) fn bytes_per_cpu(&self) -> usize {
        PerCpu::<D>::needs()
    }

    /// Bytes of per-thread shards that are accessible.
    pub(crate) fn shard_bytes_committed(&self) -> usize {
        self.per_thread.committed()
    }

    /// A cut, for who has locked the readers.
    pub(crate) fn read_locked(&self, reader: &mut Reader<D>) -> Cut<D> {
        self.cut_alone(reader, |shards, frozen| shards.settle(frozen))
    }

    /// In the child of a fork, whose shards are fresh memory: everything up to now is `counted`.
    pub(crate) fn begin_anew(&self, reader: &mut Reader<D>, counted: &D) {
        reader.saved = [D::ZERO; 2];
        self.shared.begin_anew(self.generation(), counted);
        self.per_thread.begin_anew();
    }

    /// The shards are copies in memory of the process's own, in the place of the file's.
    pub(crate) fn leave_file(&self) {
        self.per_thread.leave_file();
    }

    /// In the child of a fork: forgets the threads that are not there any more. `survivor` is how
    /// the one thread that is writes.
    pub(crate) fn after_fork_in_child(&self, survivor: Writer) {
        self.shared.reset();
        let kept = match survivor {
            Writer::Shard(shard) | Writer::FencedShard(shard) => Some(shard),
            _ => None,
        };
        self.per_thread.reclaim_all_but(kept);
    }
}

impl<D: Delta> Ledger<D> {
    #[inline]
    fn generation(&self) -> Generation {
        Generation::of(self.current.load(Ordering::Relaxed))
    }

    /// Adds `amount` to each named word, all within one cut. At most [`MAX_ENTRIES`] words, all
    /// different, given as positions in the delta.
    pub(crate) fn record(&self, writer: Writer, entries: &[(usize, u64)]) {
        debug_assert!(entries.len() <= MAX_ENTRIES);
        match writer {
            #[cfg(not(loom))]
            // SAFETY: the area is the calling thread's own; `enlist` gave it out under this
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

    /// Adds to two different words within one cut: [`Ledger::record`] for a fast path that has the
    /// thread's area at hand. `entries` are positions in the delta with what to add.
    ///
    /// # Safety
    /// `area` comes from [`Ledger::area`] for the calling thread, which has not retired since, and is
    /// not null; both positions lie within the delta.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn record_pair(
        &self,
        area: *mut crate::os::rseq::Area,
        entries: [(usize, u64); 2],
    ) {
        // A thread has an area only after the ledger was opened, and the protocol stays.
        let is_per_cpu = self.state.load(Ordering::Relaxed) == Protocol::PerCpu as u32;
        // SAFETY: the condition of this function. Under this protocol the area is the kernel's, under
        // all others it is the head of the trailer of the thread's shard.
        unsafe {
            if is_per_cpu {
                self.per_cpu.record_pair(&self.current, area, entries);
            } else {
                PerThread::<D>::record_pair(&self.current, area, entries);
            }
        }
    }

    /// Gives back what [`Ledger::enlist`] gave; the thread must not write with it again.
    pub(crate) fn retire(&self, writer: Writer) {
        if let Writer::Shard(shard) | Writer::FencedShard(shard) = writer {
            self.per_thread.release(shard);
        }
    }

    /// Takes a cut. Writers are not delayed; other readers wait their turn. Not for signal
    /// handlers: one that interrupts a reader, or a writer under [`Protocol::PerThread`], would
    /// wait for itself.
    pub(crate) fn read(&self) -> Cut<D> {
        self.cut(|shards, frozen| shards.settle(frozen))
    }

    /// What `sum` makes of a cut, where it adds up words; `None` if another reader is at it. For
    /// hooks, which may have little stack, if the protocol is [`Protocol::PerCpu`], by which nobody
    /// is waited for.
    #[cfg(all(feature = "preload", not(loom)))]
    pub(crate) fn try_sum(&self, sum: impl Fn(&D) -> u64) -> Option<u64> {
        let mut reader = match self.reader.try_lock() {
            Ok(reader) => reader,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        self.turn(&mut reader, |shards, frozen| shards.settle(frozen));
        let [one, other] = &reader.saved;
        Some(sum(one).wrapping_add(sum(other)))
    }

    /// [`Ledger::read`] with its second step given: the tests try what happens without it.
    fn cut(&self, settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool) -> Cut<D> {
        let mut reader = self
            .reader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        self.cut_alone(&mut reader, settle)
    }

    fn cut_alone(
        &self,
        reader: &mut Reader<D>,
        settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool,
    ) -> Cut<D> {
        let exact = self.turn(reader, settle);
        let [mut delta, other] = reader.saved;
        delta.add(&other);
        Cut { delta, exact }
    }

    /// Turns the generation and sums up the one that is frozen by that: what the reader remembers
    /// then adds up to a cut. Returns whether that is exact.
    fn turn(
        &self,
        reader: &mut Reader<D>,
        settle: impl FnOnce(&dyn Shards<D>, Generation) -> bool,
    ) -> bool {
        let frozen = Generation::of(self.current.fetch_xor(GENERATION_BYTES, Ordering::SeqCst));
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

/// The most words that one operation may change together.
pub(crate) const MAX_ENTRIES: usize = 4;
