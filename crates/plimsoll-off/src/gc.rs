//! Collectors whose collections are not counted. What passes from one part of the program to another by this module
//! still does: requests of collections and their ends, and targets. Otherwise programs would not collect.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
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

/// The newest record. Records are never removed, and a list without a lock is not locked in the child of a fork.
static NEWEST: AtomicPtr<Record> = AtomicPtr::new(null_mut());

/// What a collector and its cycles share. Once they are gone, another collector of that name has it.
#[derive(Debug)]
struct Record {
    name: &'static str,
    /// The collector and its cycles.
    users: AtomicUsize,
    /// Twice the number of the newest cycle, plus one after its mark termination.
    current: AtomicU64,
    /// The newest request that a forced cycle has satisfied.
    served: AtomicU64,
    older: Option<&'static Record>,
}

fn newest() -> Option<&'static Record> {
    // SAFETY: what is in the list was leaked.
    unsafe { NEWEST.load(Ordering::Acquire).as_ref() }
}

fn records() -> impl Iterator<Item = &'static Record> {
    std::iter::successors(newest(), |record| record.older)
}

/// A use of a record.
#[derive(Debug)]
struct Attached(&'static Record);

impl Attached {
    fn to_new(name: &'static str) -> Self {
        let mut record = Box::new(Record {
            name,
            users: AtomicUsize::new(1),
            current: AtomicU64::new(0),
            served: AtomicU64::new(REQUESTED.load(Ordering::Relaxed)),
            older: newest(),
        });
        loop {
            let older = record
                .older
                .map_or(null_mut(), |older| (&raw const *older).cast_mut());
            let new = Box::into_raw(record);
            match NEWEST.compare_exchange(older, new, Ordering::AcqRel, Ordering::Relaxed) {
                // SAFETY: it is leaked.
                Ok(_) => return Self(unsafe { &*new }),
                // SAFETY: it is not in the list.
                Err(_) => record = unsafe { Box::from_raw(new) },
            }
            record.older = newest();
        }
    }

    fn to_unused(name: &str) -> Option<Self> {
        let found = records().find(|record| {
            let users = &record.users;
            record.name == name
                && (users.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed)).is_ok()
        })?;
        found
            .served
            .store(REQUESTED.load(Ordering::Relaxed), Ordering::Release);
        Some(Self(found))
    }
}

impl Clone for Attached {
    fn clone(&self) -> Self {
        self.0.users.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

#[derive(Debug)]
pub struct Collector {
    attached: Attached,
}

impl Collector {
    pub fn register(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        if name.len() > LONGEST_NAME {
            return Err(Error::LongName(name.into()));
        }
        if let Some(attached) = Attached::to_unused(name) {
            return Ok(Self { attached });
        }
        let names: BTreeSet<&'static str> = records().map(|record| record.name).collect();
        let name: &'static str = match names.get(name) {
            Some(known) => known,
            None if names.len() >= MAX_NAMES => return Err(Error::TooManyNames(name.into())),
            None => String::from(name).leak(),
        };
        let attached = Attached::to_new(name);
        Ok(Self { attached })
    }

    #[inline]
    pub fn register_local(name: &str) -> Result<Self, Error> {
        Self::register(name)
    }

    #[inline]
    pub fn name(&self) -> &'static str {
        self.attached.0.name
    }

    pub fn begin(&self, cause: Cause) -> Cycle {
        let requested = REQUESTED.load(Ordering::Acquire);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.attached.0.current.store(2 * id, Ordering::Release);
        Cycle {
            attached: self.attached.clone(),
            id,
            forced: cause == Cause::Forced,
            requested,
        }
    }

    #[inline]
    pub fn is_wanted(&self) -> bool {
        let served = self.attached.0.served.load(Ordering::Relaxed);
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
    let has_served = |record: &Record| {
        record.users.load(Ordering::Acquire) == 0
            || record.served.load(Ordering::Acquire) >= request
    };
    let began = Instant::now();
    loop {
        let have_served = records().all(has_served);
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
    attached: Attached,
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
            record: self.attached.0,
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
        let is_complete = self.attached.0.current.load(Ordering::Acquire) == 2 * self.id + 1;
        if is_complete && self.forced {
            let served = &self.attached.0.served;
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
    record: &'static Record,
    id: u64,
}

impl MarkTermination {
    #[inline]
    pub fn stopped(&self) {}

    #[inline]
    pub fn scanned(&mut self, _: u64, _: u64, _: u64) {}

    pub fn finish(self, _: u64, _: u64) {
        let (open, complete) = (2 * self.id, 2 * self.id + 1);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        // It fails in a cycle that another one has replaced.
        let _ = (self.record.current).compare_exchange(open, complete, set, fetch);
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
