//! The growth of allocation sites, and whether they leak.
//!
//! ```
//! let growth = plimsoll::history::growth();
//! for site in growth.leaks() {
//!     println!("{:.0} ± {:.0} bytes/s", site.bytes_per_second, site.error);
//! }
//! ```
//!
//! The sampled memory in use of each allocation site is read every 10 seconds (setting `growth`). The
//! readings are kept for 36 hours, in ever longer means. From 64 readings on, each site has a
//! [`Verdict`] over several windows of 32 slots, the longest between an eighth and a half of the time
//! observed.
//!
//! A site is reported as leaking only if chance explains its growth with a probability of at most
//! 1 in 10,000, corrected for the number of sites and windows; if the growth is steady, exceeds all
//! earlier values, and does not slow down. Thus:
//! * A cache that fills, and a sawtooth, may be reported as long as they only rose, from the beginning
//!   of the time observed. A cache that becomes full slows down before that.
//! * A collection that doubles its one block grows in steps so few that it is not reported; its
//!   elements are, if they have blocks of their own.
//! * Growth is found once it exceeds about three standard deviations of the site's noise within a
//!   window of 512 readings or more, if that noise changes within few readings; later if the noise
//!   changes slowly.

pub(crate) mod as_json;
mod levels;
#[cfg(test)]
mod simulations;
mod sites;
mod verdict;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_postmortem::layout::history::growth as layout;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use plimsoll_core::fork::Order;
use plimsoll_core::{internal_scope, internal_thread, overhead, sampler};
use plimsoll_limits::memory_limit;
use plimsoll_stats::stats::heap_stats;
use sites::{Judged, Sites};

pub use verdict::Verdict;

/// The default of the time between two readings.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(10);

/// The number of readings from which on there are verdicts.
pub const READINGS_NEEDED: u64 = 2 * verdict::SLOTS as u64;

/// The number of readings between two judgements for the metric and for callbacks.
const JUDGED_EACH: u64 = 6;

/// Readings take at most this part of a processor's time.
const SHARE: u64 = 1000;

/// The growth of all allocation sites.
///
/// ```
/// use plimsoll::history::{self, READINGS_NEEDED};
///
/// let growth = history::growth();
/// if growth.readings < READINGS_NEEDED {
///     println!("no verdicts after {} readings in {:?}", growth.readings, growth.observed);
/// } else if let Some(time) = growth.time_to_limit {
///     println!("leaks of {:.0} bytes/s reach the limit in {time:?}", growth.bytes_per_second);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Growth {
    /// The time since the first reading.
    pub observed: Duration,
    /// The number of readings. Verdicts need [`READINGS_NEEDED`].
    pub readings: u64,
    /// The sites, the fastest growing leaks first, then all others by growth. Empty without verdicts.
    pub sites: Vec<SiteGrowth>,
    /// The growth of all leaking sites.
    pub bytes_per_second: f64,
    /// The time until the heap reaches the [memory limit](plimsoll_limits::memory_limit::set_memory_limit) if the leaking
    /// sites grow further at this rate. `None` without leak or limit.
    pub time_to_limit: Option<Duration>,
}

/// The growth of one allocation site: of all sampled blocks with the same stack.
///
/// ```
/// for site in &plimsoll::history::growth().sites {
///     println!("{}: {} bytes in use", site.verdict, site.bytes);
///     println!("{:+.0} ± {:.0} bytes/s in {:?}", site.bytes_per_second, site.error, site.window);
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SiteGrowth {
    /// The call stack as return addresses, leaf first, for [`frames`](plimsoll_profiles::profile::frames()).
    pub stack: Vec<usize>,
    /// What the readings show.
    pub verdict: Verdict,
    /// The estimated bytes in use.
    pub bytes: u64,
    /// The estimated growth in the window, by a line of least squares.
    pub bytes_per_second: f64,
    /// Half of the 95 % confidence interval of that: of the line, and of the sampling.
    pub error: f64,
    /// The probability that chance alone makes any of the sites grow like that, at most; 0 to 1.
    pub chance: f64,
    /// The length of the judged window, which ends with the last reading.
    pub window: Duration,
    /// Estimated allocations in the window.
    pub mallocs: u64,
    /// Estimated frees in the window.
    pub frees: u64,
    /// The mean time that blocks are in use, by Little's law: blocks in use for each one freed in the
    /// window. `None` if none was freed.
    pub lifetime: Option<Duration>,
    /// Estimated bytes in use over the time observed, oldest first: means of readings, longer ago of
    /// more of them, at the time of the last.
    pub course: Vec<(SystemTime, u64)>,
}

impl Growth {
    /// Returns the leaking sites.
    pub fn leaks(&self) -> impl Iterator<Item = &SiteGrowth> {
        self.sites
            .iter()
            .filter(|site| site.verdict == Verdict::Leaking)
    }
}

/// The observed sites, and what follows from their readings.
#[derive(Debug)]
pub(super) struct State {
    sites: Sites,
    interval_ns: u64,
    first: u64,
    last: u64,
    /// The time of the next reading, in nanoseconds since the system started.
    next: u64,
    /// The growth at the last judgement, in bytes a second.
    leaking: f64,
}

/// The verdicts of the last judgement, for the post-mortem file.
pub(super) struct Verdicts<'a> {
    state: &'a State,
    judged: Vec<Judged>,
}

/// A function that is called at a growth, in bytes a second.
type Callback = Arc<dyn Fn(&Growth) + Send + Sync>;

struct Threshold {
    number: u64,
    bytes_per_second: f64,
    callback: Callback,
    is_above: bool,
}

/// The registered callbacks.
pub(crate) struct Thresholds {
    registered: Vec<Threshold>,
    /// The number of callbacks so far.
    numbers: u64,
}

/// Never locked while a callback runs.
static THRESHOLDS: ForkLock<Thresholds> = ForkLock::new(
    Order::GrowthThresholds.rank(),
    Thresholds {
        registered: Vec::new(),
        numbers: 0,
    },
);

/// A registered callback, until this is dropped.
///
/// ```
/// let threshold = plimsoll::history::on_growth(1e6, |growth| {
///     eprintln!("{:.0} bytes/s leak", growth.bytes_per_second);
/// });
/// // Here the callback may run.
/// drop(threshold);
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the callback"]
pub struct GrowthThreshold {
    number: u64,
}

impl State {
    /// Returns no readings. They will take at most `bytes`.
    pub(super) fn new(bytes: usize, interval: Duration) -> Self {
        Self {
            sites: Sites::new(bytes),
            interval_ns: interval.as_nanos().try_into().unwrap_or(u64::MAX),
            first: 0,
            last: 0,
            next: 0,
            leaking: 0.0,
        }
    }

    /// Returns the time of the next reading, in nanoseconds since the system started.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Makes a reading if it is due. Returns the verdicts if the sites were judged again.
    pub(super) fn read_if_due(&mut self, now: u64) -> Option<Verdicts<'_>> {
        if now < self.next {
            return None;
        }
        let began = clock::thread_cpu();
        self.sites.read();
        let took = clock::thread_cpu().saturating_sub(began);
        if self.first == 0 {
            self.first = now;
        }
        self.last = now;
        let interval = self.interval_ns.max(took * SHARE).max(1);
        // Readings that were missed are not made up for.
        self.next = now - now % interval + interval;
        if self.sites.readings() % JUDGED_EACH != 0 {
            return None;
        }
        let judged = self.judge();
        self.leaking = sites::leaking_bytes(&judged) / self.seconds_of_reading();
        Some(Verdicts {
            state: self,
            judged,
        })
    }

    /// Judges all sites, and returns them in the order of [`Growth::sites`].
    fn judge(&self) -> Vec<Judged> {
        let mut judged = self.sites.judge(sampler::rate() > 1);
        let rate = |site: &Judged| site.judgement.slope / site.slot as f64;
        judged.sort_by(|one, other| {
            let is_leak = |site: &Judged| site.judgement.verdict == Verdict::Leaking;
            let leaks_first = is_leak(other).cmp(&is_leak(one));
            leaks_first.then(rate(other).total_cmp(&rate(one)))
        });
        judged
    }

    /// Returns the mean time between two readings.
    fn seconds_of_reading(&self) -> f64 {
        let intervals = self.sites.readings().saturating_sub(1).max(1);
        ((self.last - self.first) as f64 / 1e9 / intervals as f64).max(1e-9)
    }

    /// Returns the growth, with times after the system's start.
    pub(super) fn growth(&self, start: SystemTime) -> Growth {
        let seconds = self.seconds_of_reading();
        let judged = self.judge();
        let bytes_per_second = sites::leaking_bytes(&judged) / seconds;
        let time_of = |reading: u64| {
            let before = (self.sites.readings() - 1 - reading) as f64 * seconds;
            start + Duration::from_nanos(self.last).saturating_sub(duration(before))
        };
        Growth {
            observed: Duration::from_nanos(self.last - self.first),
            readings: self.sites.readings(),
            bytes_per_second,
            time_to_limit: time_to_limit(bytes_per_second),
            sites: judged
                .into_iter()
                .map(|site| SiteGrowth::new(site, seconds, time_of))
                .collect(),
        }
    }
}

impl Verdicts<'_> {
    /// Returns the growth of all leaking sites, in bytes a second.
    pub(super) fn bytes_per_second(&self) -> f64 {
        self.state.leaking
    }

    /// Returns the words of the record with that number, in the layout of
    /// [`plimsoll_postmortem::layout::history::growth`].
    pub(super) fn words(&self, number: u64) -> Vec<u64> {
        let State {
            sites,
            first,
            last,
            leaking,
            ..
        } = self.state;
        let seconds = self.state.seconds_of_reading();
        let to_limit = time_to_limit(*leaking).map_or(f64::NAN, |time| time.as_secs_f64());
        let written = &self.judged[..self.judged.len().min(layout::MAX_SITES)];
        let mut words = vec![0; layout::HEAD_WORDS];
        for (at, value) in [
            (layout::NUMBER, number),
            (layout::AT, *last),
            (layout::OBSERVED, last - first),
            (layout::READINGS, sites.readings()),
            (layout::READINGS_NEEDED, READINGS_NEEDED),
            (layout::BYTES_PER_SECOND, leaking.to_bits()),
            (layout::SECONDS_TO_LIMIT, to_limit.to_bits()),
            (layout::TOTAL, self.judged.len() as u64),
            (layout::SITES, written.len() as u64),
        ] {
            words[at] = value;
        }
        for site in written {
            let of_site = SiteGrowth::new(site.clone(), seconds, |_| SystemTime::UNIX_EPOCH);
            let lifetime = of_site.lifetime.map_or(f64::NAN, |time| time.as_secs_f64());
            words.extend::<[u64; layout::SITE_WORDS]>([
                u64::from(site.name),
                of_site.verdict as u64,
                of_site.bytes,
                of_site.bytes_per_second.to_bits(),
                of_site.error.to_bits(),
                of_site.window.as_nanos().try_into().unwrap_or(u64::MAX),
                lifetime.to_bits(),
            ]);
        }
        words
    }
}

impl SiteGrowth {
    fn new(site: Judged, seconds: f64, time_of: impl Fn(u64) -> SystemTime) -> Self {
        let slot = site.slot as f64 * seconds;
        let window = slot * verdict::SLOTS as f64;
        Self {
            stack: site.stack.to_vec(),
            verdict: site.judgement.verdict,
            bytes: site.bytes as u64,
            bytes_per_second: site.judgement.slope / slot,
            error: site.judgement.error / slot,
            chance: site.judgement.chance,
            window: duration(window),
            mallocs: site.mallocs as u64,
            frees: site.frees as u64,
            lifetime: (site.frees > 0.0).then(|| duration(site.objects * window / site.frees)),
            course: site
                .course
                .iter()
                .map(|&(reading, bytes)| (time_of(reading), bytes as u64))
                .collect(),
        }
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn time_to_limit(bytes_per_second: f64) -> Option<Duration> {
    let limit = memory_limit::bytes()?;
    let left = limit.saturating_sub(heap_stats().live_bytes());
    (bytes_per_second > 0.0).then(|| duration(left as f64 / bytes_per_second))
}

/// Returns the growth of all allocation sites up to the last reading. Without readings if the history
/// or the setting `growth` is off.
pub fn growth() -> Growth {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let start = super::start_of_system();
    let state = super::lock();
    let sites = state.as_ref().and_then(|state| state.growth.as_ref());
    sites.map_or_else(Growth::none, |sites| sites.growth(start))
}

impl Growth {
    fn none() -> Self {
        Self {
            observed: Duration::ZERO,
            readings: 0,
            sites: Vec::new(),
            bytes_per_second: 0.0,
            time_to_limit: None,
        }
    }
}

/// Registers a callback that runs when the leaking sites together grow by more than so many bytes a
/// second. It runs once each time that the growth rises above that; the growth must fall below half
/// of it before it can run again. It is checked at each sixth reading.
///
/// A thread of Plimsoll runs the callback, never from inside an allocation. It may do anything that a
/// thread may do. A panic ends only that call.
///
/// ```
/// let _reports = plimsoll::history::on_growth(1000.0, |growth| {
///     eprintln!("{} sites leak {:.0} bytes/s", growth.leaks().count(), growth.bytes_per_second);
/// });
/// ```
pub fn on_growth(
    bytes_per_second: f64,
    callback: impl Fn(&Growth) + Send + Sync + 'static,
) -> GrowthThreshold {
    let callback: Callback = Arc::new(callback);
    let _own = internal_scope::scope();
    let mut thresholds = lock_thresholds();
    thresholds.numbers += 1;
    let number = thresholds.numbers;
    thresholds.registered.push(Threshold {
        number,
        bytes_per_second,
        callback,
        is_above: false,
    });
    GrowthThreshold { number }
}

impl Drop for GrowthThreshold {
    fn drop(&mut self) {
        let mut thresholds = lock_thresholds();
        let mut registered = thresholds.registered.iter();
        let at = registered.position(|threshold| threshold.number == self.number);
        let removed = at.map(|at| thresholds.registered.swap_remove(at));
        // Dropping the callback may run code of the program, so the lock is released first.
        drop(thresholds);
        drop(removed);
    }
}

/// Keeps the callbacks unchanged until the guard is dropped.
pub(crate) fn lock_thresholds() -> ForkGuard<Thresholds> {
    THRESHOLDS.lock()
}

/// Calls the callbacks whose thresholds are crossed, on a thread of their own.
pub(super) fn call(bytes_per_second: f64) {
    let crossed: Vec<Callback> = {
        let mut thresholds = lock_thresholds();
        let crossed = thresholds.registered.iter_mut().filter_map(|threshold| {
            let was_above = threshold.is_above;
            threshold.is_above = bytes_per_second > threshold.bytes_per_second
                || (was_above && bytes_per_second > threshold.bytes_per_second / 2.0);
            (threshold.is_above && !was_above).then(|| Arc::clone(&threshold.callback))
        });
        crossed.collect()
    };
    if crossed.is_empty() {
        return;
    }
    // Without a thread, the next crossing calls again.
    let _ = internal_thread::spawn(c"plimsoll-growth", move || {
        let growth = growth();
        for callback in crossed {
            internal_scope::outside(|| {
                let _ = catch_unwind(AssertUnwindSafe(|| callback(&growth)));
                drop(callback);
            });
        }
    });
}
