//! CPU samples: the stacks at which threads use CPU time.
//!
//! # How
//! Each thread of the program has a timer on its CPU time, which sends a signal to that thread once
//! in each *period* of CPU time. The handler walks the thread's stack, and counts the sample in a
//! table with the labels and the task of the thread. A thread that waits uses no CPU time, so
//! no signal disturbs it. The parts that depend on the system are in [`os`].
//!
//! # Weights
//! The first end of a period comes after a random part of one, so a thread with `t` of CPU time has
//! `t / period` samples on average, however short it lives. The kernel notices an end of a period
//! only at its next clock tick, up to some milliseconds later, and several ends may pass until then.
//! Each sample therefore stands for as many periods as ended since the thread's last sample, by the
//! thread's CPU clock. So the sum of all samples follows that clock, whatever is late or lost.
//!
//! # Users
//! Samples are recorded continuously at the rate that [`set_rate`] sets. While that is 0, they are
//! recorded during a [`Session`], of which one exists at a time.

mod os;

use std::fmt;

use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::fork::Order;
use plimsoll_core::label::Labels;
use plimsoll_core::settings;
use plimsoll_core::stack::{Bucket, CPU_TABLE, Kind, StackName};
use plimsoll_tasks::task;

#[cfg(all(feature = "interpose", target_os = "linux", not(plimsoll_portable_os)))]
pub(crate) use os::before_filter;
pub use os::prepare;
pub(crate) use os::{HANDLER_TIMES, lost_samples, unwatched_threads};

/// The samples for each second of CPU time, unless another rate is set.
pub const DEFAULT_RATE: u32 = 100;

/// The maximum of samples for each second of CPU time.
pub const MAX_RATE: u32 = 1000;

/// The memory for new samples that is given its pages before handlers write to it, in bytes: those of
/// some hundred samples. A page fault takes longer than the rest of a handler.
const PAGES_AHEAD: usize = 256 << 10;

/// The cells of a bucket of [`Kind::Cpu`]: the number of periods that ended, and their nanoseconds.
const SAMPLES: usize = 0;
const NANOSECONDS: usize = 1;

/// The bits of a bucket's size that hold the name of the task's description; the bits above hold the
/// [`Missing`] stack.
const TASK: u64 = (1 << 32) - 1;

/// The reason why periods have no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Missing {
    /// The thread ended before the kernel sent the signal.
    Ended = 1 << 32,
    /// The thread blocks the signal.
    Blocked = 2 << 32,
    /// The recording ended before the kernel sent the signal.
    Stopped = 3 << 32,
}

/// The reason why a CPU profile cannot be recorded.
///
/// ```no_run
/// use plimsoll::profile::cpu::{self, StartError};
///
/// match cpu::start() {
///     Ok(()) => println!("recording"),
///     Err(StartError::InUse) => println!("a CPU profile is running already"),
///     Err(error) => eprintln!("no CPU profile: {error}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// Another CPU profile is running.
    InUse,
    /// The system has no such timers.
    Unsupported,
    /// All real-time signals are in use.
    NoSignal,
    /// The system has no memory for the handler.
    NoMemory,
    /// The system refuses timers.
    NoTimer,
    /// A system call filter (seccomp) of the process forbids this call.
    Filtered(&'static str),
}

impl std::error::Error for StartError {}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Filtered(call) => {
                return write!(
                    f,
                    "a system call filter (seccomp) of the process forbids {call}, which cpu profiling needs"
                );
            }
            Self::InUse => "cpu profiling already in use",
            Self::Unsupported => "cpu profiling is not available on this system",
            Self::NoSignal => {
                "the program uses every real-time signal, and cpu profiling needs an unused one"
            }
            Self::NoMemory => "out of memory",
            Self::NoTimer => {
                "the system refuses the timers of cpu profiling: the limit on pending signals may be too low (RLIMIT_SIGPENDING, ulimit -i)"
            }
        })
    }
}

/// The users of the samples. A fork holds its lock.
#[derive(Debug)]
pub(crate) struct Users {
    /// The number of the running session, if any.
    session: Option<u64>,
    /// The number of sessions so far.
    sessions: u64,
    /// The rate of the timers; 0 if there are none.
    running: u32,
    /// The rate of the last recording that began.
    last: u32,
    /// Whether [`CPU_TABLE`] is open, or could not be opened.
    is_table_open: bool,
}

static USERS: ForkLock<Users> = ForkLock::with_reset(
    Order::CpuUsers.rank(),
    Users {
        session: None,
        sessions: 0,
        running: 0,
        last: DEFAULT_RATE,
        is_table_open: false,
    },
    Users::after_fork_in_child,
);

/// The rate at which samples are recorded continuously, in samples a second of CPU time; 0 for none.
static RATE: AtomicU32 = AtomicU32::new(0);

/// The process's CPU time during all recordings that have ended, and at the beginning of the current
/// one. Both are written under the lock.
static RECORDED_CPU: AtomicU64 = AtomicU64::new(0);
static BEGAN_AT_CPU: AtomicU64 = AtomicU64::new(0);

/// Keeps the users unchanged until the guard is dropped.
pub(crate) fn lock() -> ForkGuard<Users> {
    USERS.lock()
}

impl Users {
    /// Makes the timers follow the users.
    fn follow(&mut self) -> Result<(), StartError> {
        let rate = match RATE.load(Ordering::Relaxed) {
            0 if self.session.is_some() => DEFAULT_RATE,
            rate => rate,
        };
        if rate == self.running {
            if rate != 0 {
                os::watch();
            }
            return Ok(());
        }
        self.end_recording();
        if rate != 0 {
            if !self.is_table_open {
                self.is_table_open = true;
                // Without the table, samples are counted as lost.
                CPU_TABLE.open(settings::early().table_bytes, None);
                CPU_TABLE.prepare_pages(PAGES_AHEAD, true);
            }
            BEGAN_AT_CPU.store(clock::process_cpu(), Ordering::Relaxed);
            os::start(1_000_000_000 / u64::from(rate))?;
            (self.running, self.last) = (rate, rate);
        }
        Ok(())
    }

    fn end_recording(&mut self) {
        if self.running != 0 {
            os::stop();
            let since = clock::process_cpu().saturating_sub(BEGAN_AT_CPU.load(Ordering::Relaxed));
            RECORDED_CPU.fetch_add(since, Ordering::Relaxed);
            self.running = 0;
        }
    }

    /// Ends sessions in the child of a fork, which the threads of the parent began. Samples that are
    /// recorded continuously go on, for the threads whose creation is seen.
    fn after_fork_in_child(&mut self) {
        self.session = None;
        os::after_fork_in_child();
        BEGAN_AT_CPU.store(clock::process_cpu(), Ordering::Relaxed);
        if self.running != 0 && RATE.load(Ordering::Relaxed) == 0 {
            os::stop();
            self.running = 0;
        }
    }
}

/// Returns the rate at which samples are recorded continuously; 0 for none.
pub fn rate() -> u32 {
    RATE.load(Ordering::Relaxed)
}

/// Returns the nanoseconds of a period of the current recording, or else of the last one.
pub(crate) fn period_ns() -> u64 {
    1_000_000_000 / u64::from(lock().last)
}

/// Sets the rate at which samples are recorded continuously, at most [`MAX_RATE`], and returns the
/// previous one. 0 records only sessions. Not for hooks.
pub fn set_rate(rate: u32) -> Result<u32, StartError> {
    let mut users = lock();
    let before = RATE.swap(rate.min(MAX_RATE), Ordering::Relaxed);
    users.follow().inspect_err(|_| {
        RATE.store(0, Ordering::Relaxed);
    })?;
    Ok(before)
}

/// A recording of samples, until it is dropped.
#[derive(Debug)]
pub(crate) struct Session(u64);

impl Session {
    /// Begins the session.
    pub(crate) fn begin() -> Result<Self, StartError> {
        let mut users = lock();
        if users.session.is_some() {
            return Err(StartError::InUse);
        }
        users.sessions += 1;
        let number = users.sessions;
        users.session = Some(number);
        if let Err(error) = users.follow() {
            users.session = None;
            return Err(error);
        }
        Ok(Self(number))
    }

    /// Returns whether the session is running. The child of a fork has ended those of its parent.
    pub(crate) fn is_running(&self) -> bool {
        lock().session == Some(self.0)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut users = lock();
        // The child of a fork has ended its parent's sessions.
        if users.session == Some(self.0) {
            users.session = None;
            // Only starting can fail.
            let _ = users.follow();
        }
    }
}

/// Returns the CPU time that all threads of the process used while samples were recorded, in
/// nanoseconds by the process's clock.
pub(crate) fn recorded_cpu_ns() -> u64 {
    let users = lock();
    let since = match users.running {
        0 => 0,
        _ => clock::process_cpu().saturating_sub(BEGAN_AT_CPU.load(Ordering::Relaxed)),
    };
    RECORDED_CPU.load(Ordering::Relaxed) + since
}

/// Counts periods that ended at a place. For signal handlers.
fn count(bucket: Bucket, periods: u64, period_ns: u64) {
    let nanoseconds = periods.wrapping_mul(period_ns);
    CPU_TABLE.add(bucket, &[(SAMPLES, periods), (NANOSECONDS, nanoseconds)]);
}

/// Counts periods of which no stack is known. For signal handlers.
fn count_missing(missing: Missing, labels: Labels, periods: u64, period_ns: u64) {
    let bucket = CPU_TABLE.bucket(Kind::Cpu, missing as u64, labels, &[]);
    count(bucket, periods, period_ns);
}

/// The samples with one stack, one task and one set of labels.
pub(crate) struct Site {
    pub stack: &'static [usize],
    pub(crate) missing: Option<Missing>,
    /// The table of stacks was full.
    pub(crate) overflow: bool,
    pub labels: Labels,
    /// The task that the thread polled; `None` outside of tracked tasks.
    pub(crate) task: Option<task::Description>,
    pub samples: u64,
    pub(crate) nanoseconds: u64,
}

/// Calls `visit` with all samples, at one instant.
pub(crate) fn read(mut visit: impl FnMut(Site)) {
    CPU_TABLE.read(Kind::Cpu, |record| {
        let task = CPU_TABLE.stack(StackName((record.size & TASK) as u32));
        visit(Site {
            stack: record.stack,
            missing: match record.size & !TASK {
                size if size == Missing::Ended as u64 => Some(Missing::Ended),
                size if size == Missing::Blocked as u64 => Some(Missing::Blocked),
                size if size == Missing::Stopped as u64 => Some(Missing::Stopped),
                _ => None,
            },
            overflow: record.overflow,
            labels: record.labels,
            task: task::Description::of_words(task),
            samples: record.cells[SAMPLES],
            nanoseconds: record.cells[NANOSECONDS],
        });
    });
}
