//! The CPU profile: where the program uses processors.
//!
//! ```no_run
//! use plimsoll::profile::{Detail, cpu};
//!
//! # fn work() {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! cpu::start()?;
//! work();
//! let profile = cpu::stop().expect("it was started");
//! profile.write_to(&mut std::fs::File::create("cpu.pb.gz")?, Detail::Full)?;
//! # Ok(())
//! # }
//! ```
//!
//! Like Go's, it has the types `samples` (a count) and `cpu` (nanoseconds), and the page
//! `/debug/pprof/profile?seconds=30` records one. With [`set_rate`], or the setting `cpu_rate`, samples
//! are recorded all the time: the page then shows a part of these, and any number of clients may read
//! it at once. `lookup("profile")` has all samples since the process began.
//!
//! # How
//! A timer on each thread's CPU time interrupts that thread after each 10 ms of it, for some
//! microseconds, by an otherwise unused real-time signal. Profilers that use `SIGPROF` continue to work
//! beside it. A waiting thread uses no CPU time and is never interrupted. A signal may end a system
//! call that a thread has just begun: calls that the system cannot restart, such as `poll`, return
//! `EINTR` then, as for any signal.
//!
//! All threads are included, those of C libraries too, but for Plimsoll's own, and for its work on the program's, such
//! as writing profiles. Samples have the labels
//! of the thread or task, and in tracked tasks the labels `task`, its name or type, and `spawned`, the
//! place where it was created.
//!
//! # Exactness
//! Each sample stands for the periods of CPU time that ended since the thread's last one, by the
//! thread's clock. The sum thus follows that clock even where the kernel checks timers rarely: mostly
//! 250 or 1000 times a second, which is also the highest rate at which stacks are read. Threads that
//! live shorter than a period are sampled with a probability in proportion to their CPU time. Comments
//! in the profile contrast the sum with the process's CPU time, and count samples without a stack.
//!
//! Only Linux has CPU profiles.

use std::sync::Arc;

use plimsoll_leaves::leaves::Leaf;
use plimsoll_pprof::kinds::{self, ProfileKind};
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use super::delta::difference;
use super::moment::Moment;
use super::reading::{
    MAX_VALUES, PolledTask, Reading, Row, Sample, Stack, Tag, TextReading, Total, ValueType,
};
use super::snapshot::Snapshot;
use super::{Profile, Source, switch};
use crate::cpu::{self, Missing, Session, Site};
use plimsoll_core::fork::Order;
use plimsoll_core::{internal_scope, overhead, stack};

pub use crate::cpu::{DEFAULT_RATE, MAX_RATE, StartError};

/// The profile `profile`.
pub(super) struct Cpu;

const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "samples",
        unit: "count",
    },
    ValueType {
        name: "cpu",
        unit: "nanoseconds",
    },
];

/// The recording that [`start`] has begun.
static STARTED: ForkLock<Option<Recording>> = ForkLock::new(Order::CpuProfile.rank(), None);

/// Keeps the recording unchanged until the guard is dropped.
pub(crate) fn lock_started() -> ForkGuard<Option<Recording>> {
    STARTED.lock()
}

/// Begins a CPU profile, with [`DEFAULT_RATE`] samples for each second of CPU time. If samples are
/// recorded [all the time](set_rate), the profile has the samples at that rate.
///
/// The child of a fork has no CPU profile running.
///
/// # Errors
/// [`StartError::InUse`] if a CPU profile is running already, here or for a page.
/// [`StartError::Unsupported`] on systems other than Linux; the other errors if the system lacks the
/// means.
pub fn start() -> Result<(), StartError> {
    let _own = internal_scope::scope();
    let recording = Recording::begin(true)?;
    let before = lock_started().replace(recording);
    drop(before);
    Ok(())
}

/// Ends the CPU profile that [`start`] began, and returns its samples. Returns `None` if there is
/// none.
pub fn stop() -> Option<Snapshot> {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let recording = lock_started().take().filter(Recording::is_running)?;
    Some(Snapshot {
        profile: Profile::from_source(&Cpu),
        reading: recording.finish(),
    })
}

/// Records samples all the time from now on: `rate` for each second of CPU time, at most
/// [`MAX_RATE`]. 0, the default, records only the profiles that [`start`] and the page begin. Returns
/// the previous rate.
///
/// Rates that divide no second evenly, such as 19, avoid being in step with the program.
///
/// # Errors
/// As for [`start`], except [`StartError::InUse`].
pub fn set_rate(rate: u32) -> Result<u32, StartError> {
    switch::try_set(rate, |rates| &mut rates.cpu, set_rate_now)
}

pub(super) fn set_rate_now(rate: u32) -> Result<u32, StartError> {
    let _own = internal_scope::scope();
    cpu::set_rate(rate)
}

/// Returns the number of samples that are recorded all the time for each second of CPU time; 0 for
/// none.
pub fn rate() -> u32 {
    cpu::rate()
}

/// A CPU profile in progress, which ends when this is dropped.
#[derive(Debug)]
pub struct Recording {
    /// `None` if samples are recorded all the time.
    session: Option<Session>,
    earlier: Reading,
}

impl Recording {
    /// Begins a profile. `alone` refuses a second one even if samples are recorded all the time.
    pub fn begin(alone: bool) -> Result<Self, StartError> {
        let session = match cpu::rate() {
            rate if rate > 0 && !alone => None,
            _ => Some(Session::begin()?),
        };
        Ok(Self {
            session,
            earlier: Cpu.read(),
        })
    }

    /// Returns whether the profile is in progress. One without a session always is.
    fn is_running(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_running)
    }

    /// Ends the profile, and returns its samples.
    pub fn finish(self) -> Reading {
        stack::refresh_modules();
        let later = Cpu.read();
        drop(self.session);
        difference(later, &self.earlier)
    }
}

fn stack(site: &Site) -> Stack {
    match (site.stack, site.missing) {
        ([], _) if site.overflow => Stack::Unknown("[the table of stacks is full]"),
        ([], Some(Missing::Ended)) => Stack::Unknown("[the thread ended before the sample]"),
        ([], Some(Missing::Blocked)) => Stack::Unknown("[the thread blocks the signal]"),
        ([], Some(Missing::Stopped)) => Stack::Unknown("[the recording ended before the sample]"),
        ([], None) => Stack::Unknown("[no stack]"),
        (frames, _) => Stack::kept(frames),
    }
}

fn tag(site: &Site) -> Tag {
    match site.task {
        None => Tag::Labels(site.labels),
        Some(task) => Tag::Polled(Arc::new(PolledTask {
            name: task.name,
            spawned: task.location.to_string(),
            labels: site.labels,
        })),
    }
}

fn sites() -> Vec<Site> {
    let mut sites = Vec::new();
    cpu::read(|site| {
        if site.samples != 0 {
            sites.push(site);
        }
    });
    sites.sort_by_key(|site| std::cmp::Reverse(site.nanoseconds));
    sites
}

/// Returns the comments of a profile with these samples, during which the process used `cpu_ns` of CPU
/// time.
fn comments(samples: &[Sample], cpu_ns: u64) -> Vec<String> {
    let sum = |at: usize, of: &dyn Fn(&Sample) -> bool| -> i64 {
        let samples = samples.iter().filter(|sample| of(sample));
        samples.map(|sample| sample.values[at]).sum()
    };
    let without_stack = |sample: &Sample| matches!(sample.stack, Stack::Unknown(_));
    vec![
        format!(
            "plimsoll: {cpu_ns} ns of CPU time by the process's clock, with Plimsoll's own work; {} ns in {} samples",
            sum(1, &|_| true),
            sum(0, &|_| true)
        ),
        format!(
            "plimsoll: {} samples without a stack, {} of them because too many threads were interrupted at once since the process began; {} threads without a timer",
            sum(0, &without_stack),
            cpu::lost_samples(),
            cpu::unwatched_threads()
        ),
    ]
}

impl Source for Cpu {
    fn kind(&self) -> ProfileKind {
        kinds::PROFILE
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        sites().len()
    }

    fn read(&self) -> Reading {
        let sites = sites();
        let samples: Vec<Sample> = sites
            .iter()
            .map(|site| {
                let mut values = [0; MAX_VALUES];
                values[0] = site.samples as i64;
                values[1] = site.nanoseconds as i64;
                Sample {
                    stack: stack(site),
                    values,
                    tag: tag(site),
                }
            })
            .collect();
        let total = Total {
            exact: cpu::recorded_cpu_ns(),
            comments,
        };
        Reading {
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: SAMPLE_TYPES[1],
            period: cpu::period_ns() as i64,
            moment: Moment::now(),
            duration_nanos: 0,
            comments: comments(&samples, total.exact),
            samples,
            leaf: |_, _| Leaf::Shown,
            total: Some(total),
        }
    }

    fn read_text(&self) -> TextReading {
        let row = |site: &Site| Row {
            values: format!("{} {}", site.nanoseconds, site.samples),
            stack: stack(site),
            tag: tag(site),
        };
        let Reading { comments, .. } = Cpu.read();
        TextReading {
            head: "--- cpu:\ncycles/second=1000000000\n".into(),
            rows: sites().iter().map(row).collect(),
            leaf: |_, _| Leaf::Shown,
            tail: comments.iter().map(|line| format!("# {line}\n")).collect(),
        }
    }
}
