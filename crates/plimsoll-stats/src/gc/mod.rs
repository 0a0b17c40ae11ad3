//! Garbage collectors inside the program: what they report, and how they are steered.
//!
//! The page of `plimsoll::gc` describes them for programs.

mod cpu;
mod cycle;
mod latch;
pub mod record;
mod registry;
mod steering;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use cpu::{CpuClass, Work};
pub use cycle::{Cause, Cycle, MarkTermination, Pause, Sweep};
pub use record::{Figures, PAUSE_TIMES, Pauses, STOPPING_TIMES};
pub use registry::MAX_NAMES;
pub use registry::lock;
pub use steering::{DEFAULT_PERCENT, memory_limit, percent, set_memory_limit, set_percent};

use plimsoll_process::cpus;
use plimsoll_sys::os;
use plimsoll_sys::primitives::Ordering;
use registry::{Attached, LONGEST_NAME, REQUESTED};

/// A garbage collector. Its figures stay in the sums after it is dropped.
///
/// All methods may be called by any thread.
///
/// ```
/// use plimsoll::gc::{Cause, Collector};
///
/// let collector = Collector::register("script")?;
/// let cycle = collector.begin(Cause::Automatic);
/// cycle.mark_termination().finish(4 << 20, 8 << 20);
/// cycle.end();
/// assert_eq!(collector.stats().cycles, 1);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[derive(Debug)]
pub struct Collector {
    attached: Arc<Attached>,
}

/// An event that a collector counts in addition to its cycles.
///
/// ```
/// use plimsoll::gc::{Collector, Counter};
/// use plimsoll::metrics::{self, Sample, Value};
///
/// let collector = Collector::register("script")?;
/// collector.add(Counter::FinalizersExecuted, 3);
///
/// let mut sample = [Sample::new("/gc/finalizers/executed:finalizers")];
/// metrics::read(&mut sample);
/// assert!(matches!(sample[0].value, Value::Uint64(3..)));
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
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

/// The reason why a collector could not be registered.
///
/// ```
/// use plimsoll::gc::{Collector, Error};
///
/// let error = Collector::register("").unwrap_err();
/// assert_eq!(error, Error::EmptyName);
/// assert_eq!(error.to_string(), "the name of a collector must not be empty");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name is empty.
    EmptyName,
    /// The name is longer than 128 bytes.
    LongName(String),
    /// The [`MAX_NAMES`] names of collectors are used up.
    TooManyNames(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("the name of a collector must not be empty"),
            Self::LongName(name) => write!(
                f,
                "the name of a collector is longer than {LONGEST_NAME} bytes: {name:?}"
            ),
            Self::TooManyNames(name) => write!(
                f,
                "cannot register the collector {name:?}: the maximum of {MAX_NAMES} names is \
                 reached"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl Collector {
    /// Registers a collector whose pauses stop the whole program. Several collectors may have the
    /// same name: their figures are then summed. Names are never removed, so a name should identify
    /// the kind of a collector, not the instance.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn register(name: &str) -> Result<Self, Error> {
        Self::new(name, true)
    }

    /// Registers a collector whose pauses stop only the collecting thread, such as an arena used by
    /// one thread. Its pauses are counted like others, but cost the time of one processor, not of
    /// all.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn register_local(name: &str) -> Result<Self, Error> {
        Self::new(name, false)
    }

    fn new(name: &str, stops_all_threads: bool) -> Result<Self, Error> {
        {
            let _own = plimsoll_core::internal_scope::scope();
            cpus::look();
        }
        os::clock::prepare();
        let attached = registry::register(name, stops_all_threads)?;
        Ok(Self { attached })
    }

    /// Returns the collector's name.
    pub fn name(&self) -> &'static str {
        self.attached.name
    }

    /// Begins a cycle. A cycle that is still open ends first, which is counted as misuse.
    pub fn begin(&self, cause: Cause) -> Cycle {
        Cycle::begin(&self.attached, cause)
    }

    /// Returns whether a [forced](Cause::Forced) cycle is requested: by [`collect`], or by a
    /// request for the heap profile with `gc=1`. It stays true until a forced cycle that began
    /// after the request has ended. Reads two words of memory.
    pub fn is_wanted(&self) -> bool {
        let served = self.attached.record.served.load(Ordering::Relaxed);
        REQUESTED.load(Ordering::Relaxed) > served
    }

    /// Sets the memory that the collector uses for itself, in bytes: Go's `GCSys`. Include only
    /// memory that does not come from the program's allocator, which counts the rest.
    pub fn set_metadata_bytes(&self, bytes: u64) {
        self.attached
            .record
            .metadata
            .store(bytes, Ordering::Relaxed);
    }

    /// Adds CPU time to a class of work. Do not include pauses: they are measured already.
    pub fn add_cpu_time(&self, class: CpuClass, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        cpu::add(self.attached.record, class, nanoseconds);
    }

    /// Measures the CPU time of the calling thread as that class of work until the guard is
    /// dropped. Costs two system calls. Do not use it within a pause, which is measured already.
    pub fn work(&self, class: CpuClass) -> Work {
        Work::begin(&self.attached, class)
    }

    /// Adds `count` to a counter.
    pub fn add(&self, counter: Counter, count: u64) {
        self.attached.record.deferred[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the figures of this collector alone.
    pub fn stats(&self) -> CollectorStats {
        CollectorStats::new(self.name(), &self.attached.record.figures())
    }
}

/// The figures of one collector, or of all collectors with one name, including dropped ones.
///
/// ```
/// # let collector = plimsoll::gc::Collector::register("script")?;
/// for stats in plimsoll::gc::collectors() {
///     println!("{}: {} cycles, paused for {:?}", stats.name, stats.cycles, stats.pause_total);
///     assert!(stats.forced_cycles <= stats.cycles);
/// }
/// # drop(collector);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectorStats {
    /// The name of the collectors.
    pub name: &'static str,
    /// The number of these collectors that exist now.
    pub attached: usize,
    /// Completed cycles: cycles with a mark termination. A count, exact; never falls.
    pub cycles: u64,
    /// Completed cycles that were [forced](Cause::Forced). A count, exact; never falls.
    pub forced_cycles: u64,
    /// Cycles that ended without a mark termination. A count, exact; never falls.
    pub abandoned_cycles: u64,
    /// Pauses, including those of abandoned cycles. A count, exact; never falls.
    pub pauses: u64,
    /// Total duration of the pauses of completed cycles, and of abandoned ones before them. Exact;
    /// never falls.
    pub pause_total: Duration,
    /// The time of the last mark termination; `None` if there was none.
    pub last_end: Option<SystemTime>,
    /// Bytes found in use at the last mark termination of each existing collector, summed. Reported
    /// by the collectors.
    pub live_bytes: u64,
    /// Heap sizes in bytes by which the next cycles should be complete, summed. Reported by the
    /// collectors.
    pub goal_bytes: u64,
    /// The collectors' own memory in bytes. Reported by the collectors.
    pub metadata_bytes: u64,
    /// Uses of guards that have no meaning and were ignored, as documented at each guard. A count;
    /// never falls.
    pub misuses: u64,
    /// Ends of pauses and mark terminations that are missing from all figures, because another
    /// thread was stopped while it recorded one. A count; never falls.
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

/// Returns the figures of all existing and former collectors, one entry per name, sorted by name.
pub fn collectors() -> Vec<CollectorStats> {
    let by_name = lock().by_name();
    by_name
        .iter()
        .map(|(name, figures)| CollectorStats::new(name, figures))
        .collect()
}

/// The interval of checks whether a requested collection is over.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Requests a [forced](Cause::Forced) cycle from every collector. Waits until each has ended one
/// that began after this call, but for `wait` at most. Returns whether they have; true if there are
/// no collectors.
///
/// The collectors must poll [`Collector::is_wanted`]; one that does not poll never responds. Do not
/// call this on a thread that has to collect.
pub fn collect(wait: Duration) -> bool {
    collect_unless(wait, &|| false)
}

/// Does what [`collect`] does, and gives up once `cancelled` returns `true`.
pub fn collect_unless(wait: Duration, cancelled: &dyn Fn() -> bool) -> bool {
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
