//! Counters to which many threads add with plain stores, and of which one reader takes a consistent
//! cut without stopping any of them.
//!
//! # The scheme
//!
//! The counters form a [`Delta`]: a struct of sums. Each writer adds to its own *shard*, and each
//! shard holds two copies of the delta, one for each *generation*. One word, [`Ledger::current`],
//! selects the generation to which writers add. To take a cut, the reader
//!
//! 1. turns `current` to the other generation,
//! 2. waits until no operation that saw the old one can still write to it,
//! 3. sums the old generation, which is now *frozen*, over all shards.
//!
//! ```text
//!   generation 0   ~~~~writing~~~~|------frozen------|~~~~writing~~~~
//!   generation 1   ----frozen-----|~~~~~writing~~~~~~|-----frozen----
//!                                 ^ turn             ^ turn
//! ```
//!
//! Words are cumulative and are never cleared. The cut is the sum of the frozen generation and of
//! the other one's total when that was last frozen. Every operation that finished before the turn
//! is in one of the two; no operation that began after it is in either. So a shard can pass
//! unchanged from an ended thread to a new one, and the reader never writes where writers do.
//!
//! # Why writers need no fence
//!
//! A writer announces itself, then loads `current`; the reader stores `current`, then reads which
//! writers are announced. Each side's store must be visible before its load, which takes a full
//! fence on both sides. The reader pays for both, through `membarrier(2)`. Writers announce
//! themselves in one of two ways, which share one instruction sequence (see [`mod@arch`]) and
//! differ in how the reader does step 2:
//!
//! * [`PerCpu`]: a shard for each processor, and the sequence is restartable. The barrier makes
//!   every writer inside one start over, in the new generation. The reader waits for no thread, not
//!   even for one that was preempted half-way; threads need no registration and leave nothing
//!   behind.
//! * [`PerThread`]: a shard for each thread with an `active` flag in it. The reader waits until it
//!   has seen each flag down once. This is for systems without restartable sequences. Every part of
//!   it is ordinary Rust that the models in `loom_models` check.
//!
//! Storing the generation itself as the flag would save a load and be wrong: a writer that stalls
//! between loading the generation and storing it as its flag is invisible to the reader.
//!
//! A thread without a shard (while it ends, or in a process that is not set up yet) uses the
//! [`SharedShard`], with atomic read-modify-writes.

#[cfg(not(loom))]
mod arch;
mod cut;
mod delta;
#[cfg(all(feature = "double-check", not(loom)))]
pub mod double_check;
mod gate;
#[cfg(not(loom))]
mod layout;
#[cfg(loom)]
mod loom_models;
#[cfg(not(loom))]
mod per_cpu;
mod per_thread;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use arch::{add, increment};
pub use delta::Delta;
pub use gate::Gate;
#[cfg(not(loom))]
pub use layout::LAYOUT;

#[cfg(not(loom))]
use per_cpu::PerCpu;
use per_thread::PerThread;
pub use per_thread::ShardIndex;
use shared::SharedShard;

use plimsoll_sys::os::fork::{SignalGuard, SignalMutex};
use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Ordering, fence};

/// Bytes of one generation of one shard: the delta, then a trailer.
pub const GENERATION_BYTES: usize = 4096;

/// Bytes of one shard: two generations.
pub const SHARD_BYTES: usize = 2 * GENERATION_BYTES;

/// Bytes at the end of a generation that are not counters.
pub const TRAILER_BYTES: usize = 64;

/// One of the two copies of a shard's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(usize);

impl Generation {
    /// Returns the generation in a value of [`Ledger::current`]: shards begin on a multiple of
    /// their size, so the generation is one bit of the address.
    #[inline]
    fn new(current: usize) -> Self {
        Self((current / GENERATION_BYTES) & 1)
    }

    /// Returns the generation of that [`index`](Self::index).
    pub fn of_index(index: usize) -> Self {
        Self(index & 1)
    }

    /// Returns 0 or 1.
    #[inline]
    pub fn index(self) -> usize {
        self.0
    }

    /// Returns the generation that this one alternates with.
    pub fn other(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// How writers announce themselves and how the reader waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Protocol {
    /// Per-CPU shards, restartable sequences: exact, and the reader waits for no thread.
    PerCpu = 2,
    /// Per-thread shards, the reader's barrier is a system call: exact.
    PerThread = 3,
    /// Per-thread shards, a fence in every operation: exact without `membarrier`, and slower.
    Fenced = 4,
}

const CLOSED: u32 = 0;
const OPENING: u32 = 1;

/// How a thread writes: fixed when it enlists, kept by the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Inside restartable sequences described in this area.
    #[cfg(not(loom))]
    Sequence(*mut plimsoll_sys::os::rseq::Area),
    /// Under the flag of this shard.
    Shard(ShardIndex),
    /// Under the flag of this shard, with a fence.
    FencedShard(ShardIndex),
    /// In the shared shard, for threads without one.
    Shared,
}

/// All counters at one instant.
#[derive(Clone, Copy, Debug)]
pub struct Cut<D> {
    /// The counters.
    pub delta: D,
    /// False if the reader's barrier failed, as under a filter of system calls that came after the set-up: the cut
    /// may miss operations that are nanoseconds old.
    pub exact: bool,
}

/// The operations of both kinds of shards that the reader uses.
pub trait Shards<D: Delta> {
    /// Returns when no operation that began before the turn can still write to `frozen`. The turn
    /// comes before the call in program order; the call provides both halves of the fence. Returns
    /// false if that is not certain.
    fn settle(&self, frozen: Generation) -> bool;

    /// Adds the words of one generation of every shard to `total`.
    fn add_up(&self, generation: Generation, total: &mut D);

    /// Bytes of shards that some writer may use, and bytes mapped for shards.
    fn bytes(&self) -> (usize, usize);
}

/// Sharded counters with consistent reads; see the module documentation.
///
/// `current` is the first field and stays so: `increment!` addresses it by the name of the
/// static.
#[repr(C)]
pub struct Ledger<D: Delta> {
    /// The address of generation 0 or 1 of shard 0: the address of the shards and the current
    /// generation in one word. Until the ledger is open, the same with the address 0.
    current: AtomicUsize,
    /// `CLOSED`, `OPENING` or a [`Protocol`].
    state: AtomicU32,
    #[cfg(not(loom))]
    per_cpu: PerCpu<D>,
    per_thread: PerThread<D>,
    /// Near the words above, to which a fork and its child write as well: each page is a page fault.
    reader: SignalMutex<Reader<D>>,
    shared: SharedShard<D>,
}

/// Memory for the shards: parts of a file.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct ShardMemory {
    /// Shards of processors.
    pub per_cpu: plimsoll_sys::os::region::Part,
    /// Shards of threads.
    pub per_thread: plimsoll_sys::os::region::Part,
    /// Two times [`GENERATION_BYTES`], zero and accessible.
    pub shared: usize,
}

/// The reader's state between cuts.
pub struct Reader<D> {
    /// The sum of each generation when it was last frozen.
    saved: [D; 2],
}

#[cfg(not(loom))]
impl<D: Delta> Ledger<D> {
    /// Returns a ledger that is not open: all threads count in the shared shard.
    pub const fn new() -> Self {
        Self {
            current: AtomicUsize::new(0),
            state: AtomicU32::new(CLOSED),
            per_cpu: PerCpu::new(),
            per_thread: PerThread::new(),
            shared: SharedShard::new(),
            reader: SignalMutex::new(Reader {
                saved: [D::ZERO; 2],
            }),
        }
    }

    /// Sets up the shards, with the protocol `forced` or else the best one of the system, in `room`
    /// if it is given. The first caller does it; a concurrent caller receives `None`, and uses
    /// [`Writer::Shared`].
    pub fn open(&self, forced: Option<Protocol>, room: Option<&ShardMemory>) -> Option<Protocol> {
        use plimsoll_sys::os::{membarrier, rseq};
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
            membarrier::Support::Rseq if rseq::area().is_some() && arch::HAS_SEQUENCES => {
                Protocol::PerCpu
            }
            membarrier::Support::Rseq | membarrier::Support::Fence => Protocol::PerThread,
            membarrier::Support::None => Protocol::Fenced,
        };
        // A protocol that the system does not support is never used, even if it is requested.
        let wanted = match forced {
            Some(Protocol::PerCpu) | None => best,
            Some(Protocol::PerThread) if support == membarrier::Support::None => best,
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
        // A reader may turn the generation bit at this moment; the addition does not affect that
        // bit.
        self.current.fetch_add(base, Ordering::SeqCst);
        self.state.store(protocol as u32, Ordering::SeqCst);
        Some(protocol)
    }

    /// Returns the protocol in use; `None` until [`Ledger::open`] has returned.
    pub fn protocol(&self) -> Option<Protocol> {
        Some(match self.state.load(Ordering::SeqCst) {
            2 => Protocol::PerCpu,
            3 => Protocol::PerThread,
            4 => Protocol::Fenced,
            _ => return None,
        })
    }

    /// Returns whether a cut is exact; `fenced` is the result of [`Shards::settle`].
    fn exactness(&self, fenced: bool) -> bool {
        match self.protocol() {
            // The writers fence for themselves.
            Some(Protocol::Fenced) => true,
            Some(Protocol::PerCpu | Protocol::PerThread) | None => fenced,
        }
    }

    /// Returns the address of the first shard, and the maximum number of shards.
    pub fn place(&self) -> (usize, usize) {
        let first = self.current.load(Ordering::SeqCst) & !(SHARD_BYTES - 1);
        let shards = match self.protocol() {
            Some(Protocol::PerCpu) => self.per_cpu.cpus(),
            Some(_) => self.per_thread.capacity(),
            None => 0,
        };
        (first, shards)
    }

    /// Returns the counts from before the set-up, as words: no writer adds to them any more.
    pub fn counted_early(&self) -> D {
        self.shared.counted_early()
    }

    fn shards(&self) -> Option<&dyn Shards<D>> {
        Some(match self.protocol()? {
            Protocol::PerCpu => &self.per_cpu,
            _ => &self.per_thread,
        })
    }

    /// Returns the calling thread's way to write, which [`Ledger::retire`] releases.
    pub fn enlist(&self) -> Writer {
        match self.protocol() {
            Some(Protocol::PerCpu) => match plimsoll_sys::os::rseq::area() {
                Some(area) => Writer::Sequence(area),
                None => Writer::Shared,
            },
            Some(Protocol::PerThread) => self
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

    /// Returns the area of a writer for `increment!`; null for a writer that has to use
    /// [`Ledger::record`].
    pub fn area(&self, writer: Writer) -> *mut plimsoll_sys::os::rseq::Area {
        match writer {
            Writer::Sequence(area) => area,
            Writer::Shard(shard) => self.per_thread.area(shard),
            Writer::FencedShard(_) | Writer::Shared => std::ptr::null_mut(),
        }
    }

    /// Returns the bytes of shards in use and the bytes mapped for shards.
    pub fn shard_bytes(&self) -> (usize, usize) {
        let (used, mapped) = self.shards().map_or((0, 0), |shards| shards.bytes());
        (
            used + size_of::<SharedShard<D>>(),
            mapped + size_of::<SharedShard<D>>(),
        )
    }

    /// Blocks readers until the guard is dropped. A fork keeps it, so that the child does not inherit an incomplete cut.
    pub fn lock_readers(&self) -> SignalGuard<'_, Reader<D>> {
        self.reader.lock()
    }

    /// Returns the sum of all counters while threads change them: not of one instant.
    pub fn sum_as_it_is(&self) -> D {
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

    /// Returns the bytes that shards for all processors need.
    pub fn bytes_per_cpu(&self) -> usize {
        PerCpu::<D>::needs()
    }

    /// Returns the bytes of per-thread shards that are accessible.
    pub fn shard_bytes_committed(&self) -> usize {
        self.per_thread.committed()
    }

    /// Takes a cut in a thread that holds the readers' lock.
    pub fn read_locked(&self, reader: &mut Reader<D>) -> Cut<D> {
        self.cut_alone(reader, |shards, frozen| shards.settle(frozen))
    }

    /// Sets the sum of everything so far to `counted`: in the child of a fork, whose shards are
    /// fresh memory.
    pub fn begin_anew(&self, reader: &mut Reader<D>, counted: &D) {
        reader.saved = [D::ZERO; 2];
        self.shared.begin_anew(self.generation(), counted);
        self.per_thread.begin_anew();
    }

    /// Records that private memory of the process has replaced the file's memory of the shards.
    pub fn leave_file(&self) {
        self.per_thread.leave_file();
    }

    /// Releases the shards of threads that no longer exist: in the child of a fork. `survivor` is
    /// the writer of the remaining thread.
    pub fn after_fork_in_child(&self, survivor: Writer) {
        self.shared.reset();
        let kept = match survivor {
            Writer::Shard(shard) | Writer::FencedShard(shard) => Some(shard),
            _ => None,
        };
        self.per_thread.reclaim_all_but(kept);
    }
}

#[cfg(not(loom))]
impl<D: Delta> Ledger<D> {
    /// Discards an operation of the calling thread that a signal handler interrupted, so that the handler can read.
    /// A reading may have a part of the operation. `own` is how the thread writes.
    pub fn discard_interrupted(&self, own: Writer) {
        match own {
            Writer::Sequence(_) => {}
            Writer::Shard(shard) | Writer::FencedShard(shard) => self.per_thread.discard(shard),
            Writer::Shared => self.shared.reset(),
        }
    }
}

/// The maximum number of words that one operation may change together.
pub const MAX_ENTRIES: usize = 4;
