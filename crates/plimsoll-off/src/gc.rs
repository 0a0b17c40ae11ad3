//! Collectors whose collections are not counted. What passes from one part of the program to another by this module
//! still does: requests of collections and their ends, and targets. Otherwise programs would not collect.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

pub const DEFAULT_PERCENT: i32 = 100;

pub const MAX_NAMES: usize = 64;

/// The maximum length of a name, in bytes.
const LONGEST_NAME: usize = 128;

/// The limit that stands for none.
const NO_LIMIT: u64 = i64::MAX as u64;

static PERCENT: AtomicI32 = AtomicI32::new(DEFAULT_PERCENT);
static MEMORY_LIMIT: AtomicU64 = AtomicU64::new(NO_LIMIT);

#[inline]
pub fn percent() -> i32 {
    PERCENT.load(Ordering::Relaxed)
}

#[inline]
pub fn set_percent(percent: i32) -> i32 {
    PERCENT.swap(percent, Ordering::Relaxed)
}

#[inline]
pub fn memory_limit() -> u64 {
    MEMORY_LIMIT.load(Ordering::Relaxed)
}

#[inline]
pub fn set_memory_limit(bytes: u64) -> u64 {
    MEMORY_LIMIT.swap(bytes.min(NO_LIMIT), Ordering::Relaxed)
}

/// The number of the newest request for a forced collection.
static REQUESTED: AtomicU64 = AtomicU64::new(0);

/// The number of the next cycle.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    names: Vec::new(),
    attached: Vec::new(),
});

struct Registry {
    /// The names, which are never removed.
    names: Vec<&'static str>,
    attached: Vec<Weak<Attached>>,
}

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a collector and its cycles share.
#[derive(Debug)]
struct Attached {
    name: &'static str,
    /// Twice the number of the newest cycle, plus one after its mark termination.
    current: AtomicU64,
    /// The newest request that a forced cycle has satisfied.
    served: AtomicU64,
}

#[derive(Debug)]
pub struct Collector {
    attached: Arc<Attached>,
}

impl Collector {
    pub fn register(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        if name.len() > LONGEST_NAME {
            return Err(Error::LongName(name.into()));
        }
        let mut registry = registry();
        let name = match registry.names.iter().copied().find(|known| *known == name) {
            Some(name) => name,
            None if registry.names.len() == MAX_NAMES => {
                return Err(Error::TooManyNames(name.into()));
            }
            None => {
                let name: &'static str = String::from(name).leak();
                registry.names.push(name);
                name
            }
        };
        let attached = Arc::new(Attached {
            name,
            current: AtomicU64::new(0),
            served: AtomicU64::new(REQUESTED.load(Ordering::Relaxed)),
        });
        registry.attached.retain(|other| other.strong_count() > 0);
        registry.attached.push(Arc::downgrade(&attached));
        Ok(Self { attached })
    }

    #[inline]
    pub fn register_local(name: &str) -> Result<Self, Error> {
        Self::register(name)
    }

    #[inline]
    pub fn name(&self) -> &'static str {
        self.attached.name
    }

    pub fn begin(&self, cause: Cause) -> Cycle {
        let requested = REQUESTED.load(Ordering::Acquire);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.attached.current.store(2 * id, Ordering::Release);
        Cycle {
            attached: Arc::clone(&self.attached),
            id,
            forced: cause == Cause::Forced,
            requested,
        }
    }

    #[inline]
    pub fn is_wanted(&self) -> bool {
        let served = self.attached.served.load(Ordering::Relaxed);
        REQUESTED.load(Ordering::Relaxed) > served
    }

    #[inline]
    pub fn set_metadata_bytes(&self, _: u64) {}

    #[inline]
    pub fn add_cpu_time(&self, _: CpuClass, _: Duration) {}

    #[inline]
    pub fn work(&self, _: CpuClass) -> Work {
        Work(PhantomData)
    }

    #[inline]
    pub fn add(&self, _: Counter, _: u64) {}

    pub fn stats(&self) -> CollectorStats {
        CollectorStats {
            name: self.name(),
            attached: 0,
            cycles: 0,
            forced_cycles: 0,
            abandoned_cycles: 0,
            pauses: 0,
            pause_total: Duration::ZERO,
            last_end: None,
            live_bytes: 0,
            goal_bytes: 0,
            metadata_bytes: 0,
            misuses: 0,
            lost: 0,
        }
    }
}

#[inline]
pub fn collectors() -> Vec<CollectorStats> {
    Vec::new()
}

pub fn collect(wait: Duration) -> bool {
    let request = REQUESTED.fetch_add(1, Ordering::AcqRel) + 1;
    let has_served = |attached: Arc<Attached>| attached.served.load(Ordering::Acquire) >= request;
    let began = Instant::now();
    loop {
        let have_served = {
            let registry = registry();
            let mut attached = registry.attached.iter().filter_map(Weak::upgrade);
            attached.all(has_served)
        };
        if have_served || began.elapsed() >= wait {
            return have_served;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    Automatic,
    Forced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counter {
    FinalizersQueued,
    FinalizersExecuted,
    CleanupsQueued,
    CleanupsExecuted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuClass {
    MarkAssist,
    MarkDedicated,
    MarkIdle,
    ScavengeAssist,
    ScavengeBackground,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    EmptyName,
    LongName(String),
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
                "cannot register the collector {name:?}: the maximum of {MAX_NAMES} names is reached"
            ),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectorStats {
    pub name: &'static str,
    pub attached: usize,
    pub cycles: u64,
    pub forced_cycles: u64,
    pub abandoned_cycles: u64,
    pub pauses: u64,
    pub pause_total: Duration,
    pub last_end: Option<SystemTime>,
    pub live_bytes: u64,
    pub goal_bytes: u64,
    pub metadata_bytes: u64,
    pub misuses: u64,
    pub lost: u64,
}

#[must_use = "the cycle ends when this is dropped"]
#[derive(Debug)]
pub struct Cycle {
    attached: Arc<Attached>,
    id: u64,
    forced: bool,
    /// The newest request at the start of the cycle.
    requested: u64,
}

impl Cycle {
    #[inline]
    pub fn pause(&self) -> Pause {
        Pause(())
    }

    #[inline]
    pub fn mark_termination(&self) -> MarkTermination {
        MarkTermination {
            attached: Arc::downgrade(&self.attached),
            id: self.id,
        }
    }

    #[inline]
    pub fn sweep(&self) -> Sweep {
        Sweep(PhantomData)
    }

    #[inline]
    pub fn end(self) {}
}

impl Drop for Cycle {
    fn drop(&mut self) {
        let is_complete = self.attached.current.load(Ordering::Acquire) == 2 * self.id + 1;
        if is_complete && self.forced {
            let served = &self.attached.served;
            served.fetch_max(self.requested, Ordering::AcqRel);
        }
    }
}

#[must_use = "the pause ends when this is dropped"]
#[derive(Debug)]
pub struct Pause(());

impl Pause {
    #[inline]
    pub fn stopped(&self) {}

    #[inline]
    pub fn end(self) {}
}

#[must_use = "marking is over when `finish` is called"]
#[derive(Debug)]
pub struct MarkTermination {
    /// A collector is gone with its last cycle, whatever guards are left.
    attached: Weak<Attached>,
    id: u64,
}

impl MarkTermination {
    #[inline]
    pub fn stopped(&self) {}

    #[inline]
    pub fn scanned(&mut self, _: u64, _: u64, _: u64) {}

    pub fn finish(self, _: u64, _: u64) {
        if let Some(attached) = self.attached.upgrade() {
            let (open, complete) = (2 * self.id, 2 * self.id + 1);
            let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
            // It fails in a cycle that another one has replaced.
            let _ = attached
                .current
                .compare_exchange(open, complete, set, fetch);
        }
    }
}

/// Not `Send`, as `Work`.
#[must_use = "the thread no longer sweeps when this is dropped"]
#[derive(Debug)]
pub struct Sweep(PhantomData<*const ()>);

#[must_use = "the time is measured until this is dropped"]
#[derive(Debug)]
pub struct Work(PhantomData<*const ()>);

// Otherwise clippy warns of a program's `drop(sweep)`.
macro_rules! ends {
    ($($guard:ident),+) => {
        $(impl Drop for $guard {
            fn drop(&mut self) {}
        })+
    };
}

ends!(Pause, Sweep, Work);
