//! A history without readings.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use crate::profile::{Profile, Snapshot};

pub const DEFAULT_BYTES: usize = 4 << 20;
pub const READINGS_NEEDED: u64 = 64;
pub const SERIES: [&str; 20] = [
    "heap_bytes",
    "heap_objects",
    "allocated_bytes",
    "freed_bytes",
    "allocated_objects",
    "freed_objects",
    "resident_bytes",
    "limit_bytes",
    "plimsoll_bytes",
    "threads",
    "tasks_running",
    "tasks_runnable",
    "tasks_waiting",
    "lock_waits",
    "lock_wait_seconds",
    "gc_cycles",
    "gc_pause_seconds",
    "cpu_seconds",
    "declared_bytes",
    "returned_bytes",
];

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct History {
    pub steps: Vec<Step>,
    pub heaps: Vec<HeapReading>,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Step {
    pub interval: Duration,
    pub points: Vec<Point>,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Point {
    pub time: SystemTime,
}

impl Point {
    #[inline]
    pub fn value(&self, _series: &str) -> Option<f64> {
        None
    }

    #[inline]
    pub fn values(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        SERIES.iter().map(|_| None)
    }
}

#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeapReading {
    pub number: u64,
    pub time: SystemTime,
    pub bytes: u64,
    pub is_maximum: bool,
}

pub fn read() -> History {
    let step = |seconds| Step {
        interval: Duration::from_secs(seconds),
        points: Vec::new(),
    };
    History {
        steps: [1, 10, 60].map(step).into(),
        heaps: Vec::new(),
    }
}

#[inline]
pub fn profile_at(_profile: &Profile, _time: SystemTime) -> Option<Snapshot> {
    None
}

#[inline]
pub fn profile_between(_profile: &Profile, _from: SystemTime, _to: SystemTime) -> Option<Snapshot> {
    None
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Growth {
    pub observed: Duration,
    pub readings: u64,
    pub sites: Vec<SiteGrowth>,
    pub bytes_per_second: f64,
    pub time_to_limit: Option<Duration>,
}

impl Growth {
    pub fn leaks(&self) -> impl Iterator<Item = &SiteGrowth> {
        self.sites
            .iter()
            .filter(|site| site.verdict == Verdict::Leaking)
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SiteGrowth {
    pub stack: Vec<usize>,
    pub verdict: Verdict,
    pub bytes: u64,
    pub bytes_per_second: f64,
    pub error: f64,
    pub chance: f64,
    pub window: Duration,
    pub mallocs: u64,
    pub frees: u64,
    pub lifetime: Option<Duration>,
    pub course: Vec<(SystemTime, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    NotSignificant,
    Unsteady,
    Leaking,
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Self::NotSignificant => "not significant",
            Self::Unsteady => "unsteady",
            Self::Leaking => "leaking",
        })
    }
}

#[inline]
pub fn growth() -> Growth {
    Growth {
        observed: Duration::ZERO,
        readings: 0,
        sites: Vec::new(),
        bytes_per_second: 0.0,
        time_to_limit: None,
    }
}

type Callback = Box<dyn Fn(&Growth) + Send + Sync>;

// Keeps what the callback captured for as long as if it could be called.
#[must_use = "dropping it ends the callback"]
pub struct GrowthThreshold {
    _callback: AssertUnwindSafe<Callback>,
}

impl fmt::Debug for GrowthThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrowthThreshold").finish_non_exhaustive()
    }
}

#[inline]
pub fn on_growth(
    _bytes_per_second: f64,
    callback: impl Fn(&Growth) + Send + Sync + 'static,
) -> GrowthThreshold {
    GrowthThreshold {
        _callback: AssertUnwindSafe(Box::new(callback)),
    }
}
