//! Free memory that is returned to the system after some time in which it was idle.
//!
//! The maintenance thread watches by how much the resident memory exceeds the blocks in use. What it exceeded them by at each
//! reading of the interval was idle. If that is much, the allocator returns its free memory, as in
//! [`free_os_memory`](plimsoll_stats::stats::free_os_memory).
//!
//! Two observations slow it down, to one attempt in 64 intervals: the allocator returned little, because the excess is not
//! its free memory; or the program soon needed as much again, and the kernel had to provide and clear the pages anew.

use std::time::Duration;

use plimsoll_core::fork::Order;
use plimsoll_core::stats::heap_stats;
use plimsoll_core::{internal_scope, overhead};
use plimsoll_process::residency;
use plimsoll_profiles::maintenance;
use plimsoll_stats::stats::return_free_memory;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::primitives::{AtomicU64, Ordering};

/// The interval in nanoseconds; 0 while nothing is returned.
static INTERVAL: AtomicU64 = AtomicU64::new(0);

/// The time of the next reading, in nanoseconds since the system started.
static NEXT: AtomicU64 = AtomicU64::new(0);

static STATE: ForkLock<Observation> = ForkLock::new(Order::GiveBack.rank(), Observation::new(0));

/// The number of readings in an interval, at most one each second.
const READINGS: u64 = 16;

/// The shortest time between two readings, in nanoseconds.
const SHORTEST: u64 = 10_000_000;

/// The longest time between two readings, in nanoseconds.
const LONGEST: u64 = 1_000_000_000;

/// The least idle memory that is returned, in bytes.
const LEAST: u64 = 8 << 20;

/// The least idle memory that is returned, as a part of the resident memory.
const LEAST_PART: u64 = 16;

/// The maximum number of intervals between two attempts.
const MAX_INTERVALS: u64 = 64;

/// Sets the time after which idle memory is returned to the system, at least 160 ms, and returns the former one; `None` for
/// never, which is the default. The maintenance thread must run.
pub fn set(after: Option<Duration>) -> Option<Duration> {
    let _own = internal_scope::scope();
    let interval = after.map_or(0, |after| {
        let interval = after.as_nanos().try_into().unwrap_or(u64::MAX);
        interval.max(READINGS * SHORTEST)
    });
    let mut state = STATE.lock();
    let before = INTERVAL.swap(interval, Ordering::Relaxed);
    if before != interval {
        let now = clock::since_boot();
        *state = Observation::new(now);
        NEXT.store(now, Ordering::Relaxed);
    }
    drop(state);
    if interval > 0 {
        static CHECK: maintenance::PeriodicCheck = maintenance::PeriodicCheck {
            period: time_to_reading,
            check: read_if_due,
        };
        maintenance::check_periodically(&CHECK);
    }
    (before > 0).then(|| Duration::from_nanos(before))
}

/// Returns the time to the next reading; `None` while nothing is returned.
fn time_to_reading() -> Option<Duration> {
    if INTERVAL.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let next = NEXT.load(Ordering::Relaxed);
    Some(Duration::from_nanos(
        next.saturating_sub(clock::since_boot()),
    ))
}

/// Makes a reading if it is due. For the maintenance thread.
fn read_if_due() {
    let (interval, now) = (INTERVAL.load(Ordering::Relaxed), clock::since_boot());
    if interval == 0 || now < NEXT.load(Ordering::Relaxed) {
        return;
    }
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    NEXT.store(
        now + (interval / READINGS).clamp(SHORTEST, LONGEST),
        Ordering::Relaxed,
    );
    let Some(reading) = Reading::now() else {
        return;
    };
    let is_due = {
        let mut state = STATE.lock();
        // It may have been set to another one meanwhile.
        INTERVAL.load(Ordering::Relaxed) == interval && state.observe(now, interval, reading)
    };
    if is_due {
        // Without the lock: this takes long, and the allocator may be the program's.
        let returned = return_free_memory();
        STATE.lock().judge(returned);
    }
}

/// The memory of the process at one moment, in bytes.
#[derive(Clone, Copy)]
struct Reading {
    /// Resident memory that is in no file.
    resident: u64,
    /// Resident memory beyond the blocks in use.
    excess: u64,
}

impl Reading {
    /// `None` if the system does not report it.
    fn now() -> Option<Self> {
        let resident = residency::anonymous()?;
        let heap = heap_stats();
        let excess = resident.saturating_sub(heap.malloc_bytes.saturating_sub(heap.free_bytes));
        Some(Self { resident, excess })
    }
}

/// What is known of idle memory.
#[derive(Debug)]
struct Observation {
    /// The begin of the present interval, in nanoseconds since the system started.
    begin: u64,
    /// The least excess since then.
    idle: u64,
    /// The largest resident memory since then.
    largest: u64,
    /// The resident memory after the last attempt, and the bytes that it returned, until that was judged.
    attempt: Option<Attempt>,
    /// The number of intervals before the next attempt.
    intervals: u64,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// The bytes that were idle.
    idle: u64,
    /// The bytes that were returned.
    returned: u64,
    /// The resident memory before.
    resident: u64,
}

impl Observation {
    const fn new(begin: u64) -> Self {
        Self {
            begin,
            idle: u64::MAX,
            largest: 0,
            attempt: None,
            intervals: 1,
        }
    }

    /// Notes a reading. Returns whether memory is to be returned now.
    fn observe(&mut self, now: u64, interval: u64, reading: Reading) -> bool {
        self.idle = self.idle.min(reading.excess);
        self.largest = self.largest.max(reading.resident);
        if now.saturating_sub(self.begin) < interval.saturating_mul(self.intervals) {
            return false;
        }
        self.judge_reuse();
        let idle = self.idle;
        let is_much = idle >= LEAST.max(reading.resident / LEAST_PART);
        (self.begin, self.idle, self.largest) = (now, u64::MAX, 0);
        if is_much {
            self.attempt = Some(Attempt {
                idle,
                returned: 0,
                resident: reading.resident,
            });
        }
        is_much
    }

    /// Notes what an attempt returned.
    fn judge(&mut self, returned: u64) {
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        attempt.returned = returned;
        if returned < attempt.idle / 4 {
            // Most of the excess is not the allocator's free memory.
            self.attempt = None;
            self.slow_down();
        }
    }

    /// Considers whether the program needed the memory that was returned again, at the end of an interval.
    fn judge_reuse(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        let left = attempt.resident.saturating_sub(attempt.returned);
        if self.largest.saturating_sub(left) >= attempt.returned / 2 {
            self.slow_down();
        } else {
            self.intervals = (self.intervals / 2).max(1);
        }
    }

    fn slow_down(&mut self) {
        self.intervals = (self.intervals * 2).min(MAX_INTERVALS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A process whose blocks in use follow a function of the reading, and whose allocator returns a part of its excess.
    struct Process {
        resident: u64,
        observation: Observation,
        /// The part of the excess that the allocator can return, in hundredths.
        returnable: u64,
    }

    impl Process {
        fn new(returnable: u64) -> Self {
            Self {
                resident: 0,
                observation: Observation::new(0),
                returnable,
            }
        }

        /// Makes readings at 1 to `until`, 10 in an interval. Returns the attempts: the reading and the bytes.
        fn run(&mut self, until: u64, in_use: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
            let mut attempts = Vec::new();
            for now in 1..=until {
                let in_use = in_use(now);
                self.resident = self.resident.max(in_use);
                let reading = Reading {
                    resident: self.resident,
                    excess: self.resident - in_use,
                };
                if self.observation.observe(now, 10, reading) {
                    let returned = reading.excess * self.returnable / 100;
                    self.resident -= returned;
                    self.observation.judge(returned);
                    attempts.push((now, returned));
                }
            }
            attempts
        }
    }

    #[test]
    fn idle_memory_is_returned_once() {
        let attempts =
            Process::new(100).run(200, |now| if now < 15 { 500 * MIB } else { 100 * MIB });
        // The first whole interval in which it was idle.
        assert_eq!(attempts, [(30, 400 * MIB)]);
    }

    #[test]
    fn memory_that_is_used_within_the_interval_stays() {
        let attempts =
            Process::new(100).run(300, |now| if now % 8 == 0 { 500 * MIB } else { 100 * MIB });
        assert_eq!(attempts, []);
        let attempts = Process::new(100).run(300, |_| 100 * MIB);
        assert_eq!(attempts, [], "nothing is idle");
        let attempts =
            Process::new(100).run(300, |now| if now < 5 { 107 * MIB } else { 100 * MIB });
        assert_eq!(attempts, [], "that is little");
    }

    #[test]
    fn reuse_slows_it_down() {
        // Each 25 readings, the program needs the memory again.
        let used = |now: u64| if now % 25 == 0 { 500 * MIB } else { 100 * MIB };
        let mut process = Process::new(100);
        let attempts = process.run(10_000, used);
        assert!(attempts.len() < 12, "{attempts:?}");
        // After the load has ended, the pauses become shorter again.
        let later = process.run(10_000, |_| 100 * MIB);
        assert_eq!(later.len(), 0, "all had been returned: {later:?}");
        assert!(process.observation.intervals <= MAX_INTERVALS);
    }

    #[test]
    fn an_allocator_that_returns_nothing_is_asked_seldom() {
        let attempts =
            Process::new(0).run(64_000, |now| if now < 5 { 500 * MIB } else { 100 * MIB });
        assert!((90..=110).contains(&attempts.len()), "{}", attempts.len());
    }
}
