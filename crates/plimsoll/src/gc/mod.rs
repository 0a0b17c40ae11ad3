//! Garbage collectors of the program's own: a scripting language, a virtual machine, an arena that
//! traces. They say when they collect, by guards, and so become part of the statistics as Go's
//! collector is of Go's: [`gc_stats()`](crate::gc_stats), [`mem_stats()`](crate::mem_stats), and
//! the heap profile.
//!
//! ```
//! use plimsoll::gc::{Cause, Collector};
//!
//! # fn main() -> Result<(), plimsoll::gc::Error> {
//! let collector = Collector::register("toy")?;
//!
//! let cycle = collector.begin(Cause::Automatic);
//! let pause = cycle.pause();
//! // Stop the threads, find the roots.
//! pause.end();
//! // Mark.
//! let termination = cycle.mark_termination();
//! // Stop the threads, mark the rest.
//! termination.finish(4 << 20, 8 << 20);
//! let sweep = cycle.sweep();
//! // Free what is dead.
//! drop(sweep);
//! cycle.end();
//!
//! let stats = plimsoll::gc_stats();
//! assert_eq!((stats.num_gc, stats.pause.len()), (1, 1));
//! assert_eq!(plimsoll::mem_stats().next_gc, 8 << 20);
//! # Ok(())
//! # }
//! ```
//!
//! A guard costs some hundred nanoseconds and allocates nothing. It waits for nobody, so the
//! program may be stopped meanwhile, wherever its threads are; at the most, what it has to say is
//! lost, which is counted. Only registering and dropping a [`Collector`], and reading statistics,
//! are for when nobody is stopped: a thread may be stopped with a lock that they take. Wrong uses
//! are defined with each guard: they are counted in [`CollectorStats::misuses`], and break no
//! statistics.
//!
//! # The heap profile
//! With the first mark termination, the profiles `heap` and `allocs` become those of mark
//! terminations, as in Go: they show what was allocated up to the one before the last, less what
//! the sweep after that freed. What is garbage, but was not looked for yet, is not shown as memory
//! in use; in return, the profile is a cycle or two behind. The end of a [forced](Cause::Forced)
//! cycle brings it up to that. [`heap_stats()`](crate::heap_stats) and its like are of now, always.
//!
//! With several collectors, whichever terminates its marking while no other sweeps moves the
//! profile on; a sweep beside that of another counts as frees by the program.

mod cpu;
mod cycle;
mod latch;
mod record;
mod registry;
mod steering;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use cpu::{CpuClass, Work};
pub use cycle::{Cause, Cycle, MarkTermination, Pause, Sweep};
pub(crate) use record::{Figures, PAUSE_TIMES, Pauses, STOPPING_TIMES};
pub use registry::MOST_NAMES;
pub(crate) use registry::{Registry, lock};
pub use steering::{DEFAULT_PERCENT, memory_limit, percent, set_memory_limit, set_percent};

use crate::os;
use crate::primitives::Ordering;
use registry::{Attached, LONGEST_NAME, REQUESTED};

/// A garbage collector. What it did stays in the sums when this is dropped.
///
/// All methods may be called by any thread.
#[derive(Debug)]
pub struct Collector {
    attached: Arc<Attached>,
}

/// What a collector counts beside its cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    /// Finalizers whose objects were found dead: Go's `/gc/finalizers/queued:finalizers`.
    FinalizersQueued,
    /// Finalizers that have run: `/gc/finalizers/executed:finalizers`.
    FinalizersExecuted,
    /// Cleanups whose objects were found dead: `/gc/cleanups/queued:cleanups`.
    CleanupsQueued,
    /// Cleanups that have run: `/gc/cleanups/executed:cleanups`.
    CleanupsExecuted,
}

impl Counter {
    pub(crate) const COUNT: usize = 4;
}

/// Why there is no such collector.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name of a collector must not be empty.
    EmptyName,
    /// It is longer than 128 bytes.
    LongName(String),
    /// Collectors have had [`MOST_NAMES`] other names already.
    TooManyNames(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a collector must have a name: it is empty"),
            Self::LongName(name) => write!(
                f,
                "the name of a collector is longer than {LONGEST_NAME} bytes: {name:?}"
            ),
            Self::TooManyNames(name) => write!(
                f,
                "there is no room for the collector {name:?}: there were {MOST_NAMES} names already"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl Collector {
    /// Registers a collector whose pauses stop the whole program. Several may have the same name:
    /// their figures are then summed. Names stay for good: they say of what kind a collector is,
    /// not which one it is.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn register(name: &str) -> Result<Self, Error> {
        Self::new(name, true)
    }

    /// The same for a collector whose pauses stop only the thread that collects: the arena of a
    /// thread, say. They are pauses like others, but cost one processor's time, not that of all.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn register_local(name: &str) -> Result<Self, Error> {
        Self::new(name, false)
    }

    fn new(name: &str, stops_everybody: bool) -> Result<Self, Error> {
        os::cpus::look();
        os::clock::prepare();
        let attached = registry::register(name, stops_everybody)?;
        Ok(Self { attached })
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.attached.name
    }

    /// Begins a cycle. One that has not ended yet is ended by that, which is counted as misuse.
    pub fn begin(&self, cause: Cause) -> Cycle {
        Cycle::begin(&self.attached, cause)
    }

    /// Whether somebody waits for a [forced](Cause::Forced) cycle: [`collect`], or a request for
    /// the heap profile with `gc=1`. It stays so until one that began after has ended. A look
    /// at two words in memory.
    pub fn is_wanted(&self) -> bool {
        let served = self.attached.record.served.load(Ordering::Relaxed);
        REQUESTED.load(Ordering::Relaxed) > served
    }

    /// Sets how much memory the collector has for itself, in bytes: Go's `GCSys`. Only what does
    /// not come from the program's allocator, which has counted the rest.
    pub fn set_metadata_bytes(&self, bytes: u64) {
        self.attached
            .record
            .metadata
            .store(bytes, Ordering::Relaxed);
    }

    /// Adds to what a class of work has taken, in processor time. That of pauses is known already.
    pub fn add_cpu_time(&self, class: CpuClass, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        cpu::add(self.attached.record, class, nanoseconds);
    }

    /// The calling thread does that class of work until the guard is dropped: its processor time is
    /// measured. Takes two system calls. Not within a pause, whose time is known already.
    pub fn work(&self, class: CpuClass) -> Work {
        Work::begin(&self.attached, class)
    }

    /// Counts so many more.
    pub fn add(&self, counter: Counter, count: u64) {
        self.attached.record.deferred[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// The figures of this collector alone.
    pub fn stats(&self) -> CollectorStats {
        CollectorStats::new(self.name(), &self.attached.record.figures())
    }
}

/// The figures of a collector, or of all of a name, also of those that are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectorStats {
    /// What the collectors are called.
    pub name: &'static str,
    /// How many of them there are now.
    pub attached: usize,
    /// Completed cycles: those with a mark termination. A count, exact; never falls.
    pub cycles: u64,
    /// Those of them that were [forced](Cause::Forced). A count, exact; never falls.
    pub forced_cycles: u64,
    /// Cycles that ended without a mark termination. A count, exact; never falls.
    pub abandoned_cycles: u64,
    /// Pauses, also those of abandoned cycles. A count, exact; never falls.
    pub pauses: u64,
    /// How long the pauses of completed cycles have taken, with those of abandoned ones before
    /// them. Exact; never falls.
    pub pause_total: Duration,
    /// When the last mark termination was; `None` if there was none.
    pub last_end: Option<SystemTime>,
    /// How many bytes were found in use at the last mark termination of each collector there is,
    /// in all. Said by the collectors.
    pub live_bytes: u64,
    /// At how many bytes the next cycles are to be over, in all. Said by the collectors.
    pub goal_bytes: u64,
    /// Memory of the collectors' own, in bytes. Said by them.
    pub metadata_bytes: u64,
    /// Guards that were used where they have no meaning, and were ignored as it says there. A
    /// count; never falls.
    pub misuses: u64,
    /// Ends of pauses, and mark terminations, that are in none of the figures, because another
    /// thread was stopped in the middle of noting one. A count; never falls.
    pub lost: u64,
}

impl CollectorStats {
    fn new(name: &'static str, figures: &Figures) -> Self {
        Self {
            name,
            attached: figures.attached,
            cycles: figures.cycles,
            forced_cycles: figures.forced,
            abandoned_cycles: figures.abandoned,
            pauses: figures.pauses,
            pause_total: Duration::from_nanos(figures.pause_ns),
            last_end: (figures.last_end != 0)
                .then(|| UNIX_EPOCH + Duration::from_nanos(figures.last_end)),
            live_bytes: figures.live,
            goal_bytes: figures.goal,
            metadata_bytes: figures.metadata,
            misuses: figures.misuses,
            lost: figures.lost,
        }
    }
}

/// The figures of all collectors that there are or were, one for each name, sorted.
pub fn collectors() -> Vec<CollectorStats> {
    let by_name = lock().by_name();
    by_name
        .iter()
        .map(|(name, figures)| CollectorStats::new(name, figures))
        .collect()
}

/// How often it is looked whether a collection is over that was asked for.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Asks every collector for a [forced](Cause::Forced) cycle, and waits until each has ended one
/// that began after this was called, but at most for `wait`. Returns whether they have; true if
/// there are none.
///
/// It is for the collectors to look at [`Collector::is_wanted`]: one that nobody runs does not
/// answer. Do not call it on the thread that would have to.
pub fn collect(wait: Duration) -> bool {
    collect_unless(wait, &|| false)
}

pub(crate) fn collect_unless(wait: Duration, cancelled: &dyn Fn() -> bool) -> bool {
    let request = registry::request();
    let began = std::time::Instant::now();
    loop {
        if registry::have_served(request).unwrap_or(true) {
            return true;
        }
        if began.elapsed() >= wait || cancelled() {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
