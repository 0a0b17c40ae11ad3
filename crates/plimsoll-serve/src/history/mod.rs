//! The recent history of the process: statistics at growing intervals, and readings of the heap
//! profile.
//!
//! ```
//! # #[global_allocator]
//! # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
//! let _plimsoll = plimsoll::start();
//! # loop {
//! # let history = plimsoll::history::read();
//! # if !history.steps[0].points.is_empty() { break }
//! # std::thread::sleep(std::time::Duration::from_millis(20));
//! # }
//! let history = plimsoll::history::read();
//! let last = history.steps[0].points.last().expect("a reading each second");
//! println!("{:?}: {:?} bytes in use", last.time, last.value("heap_bytes"));
//! ```
//!
//! Once `start` was called, the maintenance thread reads the [`SERIES`] each second. The
//! history has 10 minutes of these readings, 3 hours with one each 10 seconds, and 2 days with one
//! each minute. It keeps readings of the heap profile at each maximum that exceeds the last one by a
//! tenth, the last 8 of these; one each minute for 10 minutes, each 10 minutes for 3 hours, and each
//! hour for 2 days. Profiles of events have readings at the same times, except for maxima: `allocs`, `block`, `lifetimes`, `longpoll`,
//! `mmap`, `mutex`, `profile`, and those of the program. All of it takes at most the memory of the setting `history`, 4 MiB by default,
//! which counts as Plimsoll's own. Where that is less, the history is shorter.
//!
//! A process with a post-mortem file writes each reading to the file as well, in the same amount of
//! memory. So `plimsoll report FILE` shows the time before a kill.
//!
//! The child of a fork has the history of its parent up to the fork, and no further readings unless
//! it starts Plimsoll again.

pub(crate) mod as_json;
mod file;
pub(crate) mod growth;
mod heaps;
mod profiles;
mod rings;
mod series;
mod spacing;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_leaves::leaves;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicU64, AtomicUsize, Ordering};

use plimsoll_core::fork::Order;
use plimsoll_core::{internal_heap, internal_scope, overhead, sampler, settings};
use plimsoll_ledger::postmortem_file;
use plimsoll_profiles::maintenance;
use plimsoll_profiles::metrics;
use plimsoll_profiles::profile::delta::difference;
use plimsoll_profiles::profile::heap::IN_USE_TYPES;
use plimsoll_profiles::profile::moment::Moment;
use plimsoll_profiles::profile::reading::{MAX_VALUES, Reading, SPACE, Sample, Stack, Tag};
use plimsoll_profiles::profile::snapshot::{Snapshot, snapshot};
use plimsoll_profiles::profile::{self, Profile};
use plimsoll_stats::stats::limits;

pub use growth::{
    DEFAULT_INTERVAL, Growth, GrowthThreshold, READINGS_NEEDED, SiteGrowth, Verdict, growth,
    on_growth,
};
pub use series::SERIES;

use file::Recorder;
use heaps::{Heap, Heaps};
use profiles::{PastReading, Profiles};
use rings::Rings;
use series::{HEAP, Meter};

/// The default of the memory for the history, in bytes.
pub const DEFAULT_BYTES: usize = settings::DEFAULT_HISTORY_BYTES;

/// The time between two readings, in nanoseconds.
const INTERVAL: u64 = 1_000_000_000;

/// The state; `None` while the history is off.
static STATE: ForkLock<Option<State>> = ForkLock::new(Order::History.rank(), None);

/// The time of the next reading, in nanoseconds since the system started; 0 while the history is off.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The memory of the history, in bytes; 0 while it is off.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The time between two readings of growth, in nanoseconds; 0 while that is off.
static GROWTH_INTERVAL: AtomicU64 = AtomicU64::new(0);

/// The part of the memory that is for the observation of growth.
const GROWTH_PART: usize = 4;

#[derive(Debug)]
pub(crate) struct State {
    meter: Meter,
    rings: Rings,
    heaps: Heaps,
    profiles: Profiles,
    /// The time of the next reading of the statistics, in nanoseconds since the system started.
    next: u64,
    growth: Option<growth::State>,
    /// Writes the readings to the post-mortem file, if the process has one.
    recorder: Option<Recorder<'static>>,
}

/// The history of the process.
///
/// ```
/// let history = plimsoll::history::read();
/// for step in &history.steps {
///     println!("{} readings, one each {:?}", step.points.len(), step.interval);
/// }
/// println!("{} readings of the heap profile", history.heaps.len());
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct History {
    /// The readings by interval, the shortest first. Empty if the history is off.
    pub steps: Vec<Step>,
    /// The kept readings of the heap profile, oldest first.
    pub heaps: Vec<HeapReading>,
}

/// The readings of one interval.
///
/// ```
/// for step in plimsoll::history::read().steps {
///     if let [first, .., last] = &step.points[..] {
///         println!("each {:?} from {:?} to {:?}", step.interval, first.time, last.time);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    /// The time between two readings.
    pub interval: Duration,
    /// The readings, oldest first.
    pub points: Vec<Point>,
}

/// A reading of all [`SERIES`].
///
/// ```
/// use plimsoll::history::{self, SERIES};
///
/// let history = history::read();
/// if let Some(point) = history.steps.first().and_then(|step| step.points.last()) {
///     for (series, value) in SERIES.iter().zip(point.values()) {
///         assert_eq!(point.value(series), value);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Point {
    /// The time of the reading.
    pub time: SystemTime,
    /// NaN for values that do not exist.
    values: [f64; SERIES.len()],
}

impl Point {
    /// Returns the value of a series; `None` if the name is unknown or the value was absent.
    pub fn value(&self, series: &str) -> Option<f64> {
        let at = SERIES.iter().position(|name| *name == series)?;
        self.values().nth(at)?
    }

    /// Returns the values in the order of [`SERIES`]; `None` for values that did not exist.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        let values = self.values.iter();
        values.map(|value| value.is_finite().then_some(*value))
    }
}

/// A kept reading of the heap profile.
///
/// ```
/// use plimsoll::{history, profile};
///
/// let heap = profile::lookup("heap").expect("built in");
/// if let Some(largest) = history::read().heaps.iter().max_by_key(|reading| reading.bytes) {
///     println!("{} bytes in use at {:?}", largest.bytes, largest.time);
///     println!("{:?}", history::profile_at(&heap, largest.time));
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeapReading {
    /// The number of the reading, from 1.
    pub number: u64,
    /// The time of the reading.
    pub time: SystemTime,
    /// The bytes in use, exactly.
    pub bytes: u64,
    /// Whether the heap was larger than at all earlier ones by a tenth.
    pub is_maximum: bool,
}

/// Returns the history up to now.
pub fn read() -> History {
    read_where(|_| true)
}

/// Returns the readings of the history whose time is wanted. The others are not copied.
pub(crate) fn read_where(is_wanted: impl Fn(SystemTime) -> bool) -> History {
    let since_boot = start_of_system();
    let state = lock();
    let Some(state) = &*state else {
        return History {
            steps: Vec::new(),
            heaps: Vec::new(),
        };
    };
    let point = |point: &rings::Point| {
        let time = since_boot + Duration::from_nanos(point.at);
        is_wanted(time).then_some(Point {
            time,
            values: point.values,
        })
    };
    History {
        steps: state
            .rings
            .iter()
            .map(|(seconds, points)| Step {
                interval: Duration::from_secs(seconds),
                points: points.filter_map(point).collect(),
            })
            .collect(),
        heaps: state
            .heaps
            .iter()
            .map(|heap| HeapReading {
                number: heap.number,
                time: since_boot + Duration::from_nanos(heap.at),
                bytes: heap.bytes as u64,
                is_maximum: heap.is_maximum,
            })
            .filter(|heap| is_wanted(heap.time))
            .collect(),
    }
}

/// Returns the kept reading of a profile that is nearest to a time: everything since the process
/// began. Of `heap`, this is the memory in use, with the types `inuse_objects` and `inuse_space`.
/// `None` if none is kept, as of profiles of the present state (`goroutine`, `memory`, `peak`).
pub fn profile_at(profile: &Profile, time: SystemTime) -> Option<Snapshot> {
    let start = start_of_system();
    let state = lock();
    let state = state.as_ref()?;
    let at = since_start(time, start);
    let reading = match profile.name() {
        "heap" => reading(state.heaps.nearest(at)?, start),
        name => dated(state.profiles.at(name, at)?, start),
    };
    Some(snapshot(*profile, reading))
}

/// Returns the change of a profile between its kept readings that are nearest to two times. `None`
/// if these are not two different ones.
pub fn profile_between(profile: &Profile, from: SystemTime, to: SystemTime) -> Option<Snapshot> {
    let start = start_of_system();
    let state = lock();
    let state = state.as_ref()?;
    let [from, to] = [from, to].map(|time| since_start(time, start));
    let change = if profile.name() == "heap" {
        let [earlier, later] = [from, to].map(|at| state.heaps.nearest(at));
        let (earlier, later) = earlier.zip(later)?;
        if earlier.number >= later.number {
            return None;
        }
        difference(reading(later, start), &reading(earlier, start))
    } else {
        dated(state.profiles.between(profile.name(), from, to)?, start)
    };
    Some(snapshot(*profile, change))
}

fn dated(past: PastReading, start: SystemTime) -> Reading {
    Reading {
        moment: moment(start, past.at),
        ..past.reading
    }
}

fn moment(start: SystemTime, since_boot: u64) -> Moment {
    let time = (start + Duration::from_nanos(since_boot)).duration_since(UNIX_EPOCH);
    let nanoseconds = time.unwrap_or_default().as_nanos();
    Moment {
        since_1970: nanoseconds.try_into().unwrap_or(i64::MAX),
        since_boot,
    }
}

/// Returns the time at which the system started, by the current clock.
fn start_of_system() -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(Duration::from_nanos(clock::since_boot()))
        .unwrap_or(UNIX_EPOCH)
}

fn since_start(time: SystemTime, start: SystemTime) -> u64 {
    let since = time.duration_since(start).unwrap_or_default();
    since.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn reading(heap: &Heap, start: SystemTime) -> Reading {
    let samples = heap.sites.iter().map(|site| {
        let key = &site.record;
        let mut values = [0; MAX_VALUES];
        values[0] = site.objects;
        values[1] = site.bytes;
        Sample {
            stack: Stack::of_bucket(key.stack, key.overflow),
            values,
            tag: match key.size {
                0 => Tag::Labels(key.labels),
                size => Tag::Bytes(size as i64, key.labels),
            },
        }
    });
    Reading {
        total: None,
        sample_types: &IN_USE_TYPES,
        default_type: "",
        period_type: SPACE,
        period: sampler::rate() as i64,
        moment: moment(start, heap.at),
        duration_nanos: 0,
        samples: samples.collect(),
        leaf: leaves::allocation::leaf,
        comments: vec![format!(
            "plimsoll: kept reading {} of the history: in use: {} bytes exactly",
            heap.number, heap.bytes
        )],
    }
}

/// Begins the history, in at most so many bytes of memory, and readings of growth at this interval. Zero
/// ends either. The maintenance thread must run.
pub fn begin(bytes: usize, growth_interval: Duration) {
    let _own = internal_scope::scope();
    let interval = growth_interval.as_nanos().try_into().unwrap_or(u64::MAX);
    let is_same_interval = GROWTH_INTERVAL.swap(interval, Ordering::Relaxed) == interval;
    if BYTES.swap(bytes, Ordering::Relaxed) == bytes && is_same_interval {
        return;
    }
    let for_points = rings::BYTES.min(bytes / 2);
    let for_growth = if interval > 0 { bytes / GROWTH_PART } else { 0 };
    let for_profiles = bytes - for_points - for_growth;
    let regions = postmortem_file::history::regions(file::divide);
    let begun = (bytes > 0).then(|| State {
        meter: Meter::new(),
        rings: Rings::new(for_points),
        heaps: Heaps::new(for_profiles / 2),
        profiles: Profiles::new(for_profiles / 2),
        next: 0,
        growth: (interval > 0).then(|| growth::State::new(for_growth, growth_interval)),
        recorder: None,
    });
    let is_on = begun.is_some();
    let mut state = lock();
    let before = std::mem::replace(&mut *state, begun);
    if let Some(regions) = regions {
        // The lock keeps the maintenance thread from writing to the file meanwhile.
        file::clear(regions);
        if let Some(state) = &mut *state {
            state.recorder = Recorder::new(regions);
        }
    }
    // Before another reading can begin, which would set it for the former history.
    let next = if is_on { clock::since_boot().max(1) } else { 0 };
    NEXT.store(next, Ordering::Relaxed);
    if !is_on {
        metrics::set_growth(0.0);
    }
    drop(state);
    drop(before);
    if is_on {
        static CHECK: maintenance::PeriodicCheck = maintenance::PeriodicCheck {
            period: time_to_reading,
            check: read_if_due,
        };
        maintenance::check_periodically(&CHECK);
    }
}

/// Returns the time to the next reading; `None` while the history is off.
fn time_to_reading() -> Option<Duration> {
    let next = NEXT.load(Ordering::Relaxed);
    (next != 0).then(|| Duration::from_nanos(next.saturating_sub(clock::since_boot())))
}

/// Makes a reading if it is due. For the maintenance thread.
fn read_if_due() {
    let next = NEXT.load(Ordering::Relaxed);
    let now = clock::since_boot();
    if next == 0 || now < next {
        return;
    }
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let mut guard = lock();
    let Some(state) = &mut *guard else { return };
    if now >= state.next {
        // Readings that were missed, for instance while the system slept, are not made up for.
        state.next = now - now % INTERVAL + INTERVAL;
        state.read();
    }
    let mut judged = None;
    if let Some(growth) = &mut state.growth {
        judged = growth.read_if_due(now).map(|verdicts| {
            if let Some(recorder) = &state.recorder {
                recorder.write_growth(&verdicts);
            }
            verdicts.bytes_per_second()
        });
    }
    let of_growth = state.growth.as_ref().map_or(u64::MAX, growth::State::next);
    NEXT.store(state.next.min(of_growth), Ordering::Relaxed);
    drop(guard);
    if let Some(bytes_per_second) = judged {
        metrics::set_growth(bytes_per_second);
        growth::call(bytes_per_second);
    }
}

impl State {
    /// Reads the statistics, and the heap profile if that is due.
    fn read(&mut self) {
        let point = self.meter.read();
        limits::observe();
        let recorder = &mut self.recorder;
        recorder.take_if(|_| !postmortem_file::history::is_in_use());
        if let Some(recorder) = recorder {
            let start = start_of_system().duration_since(UNIX_EPOCH);
            recorder.set_start_of_system(start.unwrap_or_default().as_nanos() as u64);
        }
        self.rings.add(point, |ring, point| {
            if let Some(recorder) = recorder {
                recorder.add_point(ring, point);
            }
        });
        let bytes = point.values[HEAP];
        let due = self.heaps.due(point.at, bytes);
        if due.is_due() {
            self.heaps.add(due, point.at, bytes, heaps::read());
            if let Some(recorder) = recorder {
                recorder.write_heaps(self.heaps.kept());
            }
        }
        if self.profiles.is_due(point.at) {
            self.profiles.add(point.at, profile::kept());
            internal_heap::trim();
        }
    }
}

/// Keeps the history unchanged until the guard is dropped.
pub(crate) fn lock() -> ForkGuard<Option<State>> {
    STATE.lock()
}
