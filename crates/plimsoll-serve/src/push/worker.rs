//! The thread that reads and sends profiles.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::process_id;

use super::address::Address;
use super::client::{self, Failure};
use super::settings::{Content, Header, Program, Protocol};
use plimsoll_core::internal_thread::{self, OwnThread};
use plimsoll_core::{internal_heap, internal_scope, overhead, stack, warning};
use plimsoll_profiles::export;
use plimsoll_profiles::profile::Profile;
use plimsoll_profiles::profile::Readable as _;
use plimsoll_profiles::profile::delta::Events;
use plimsoll_profiles::profile::reading::Reading;
use plimsoll_profiles::profile::{cpu, switch};

/// Time limit of a request.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Time limit of the last interval, and of the wait for it.
const LAST_TIME: Duration = Duration::from_secs(5);

/// The times between the attempts at a request.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The checked settings of a push.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) protocol: Box<dyn Protocol>,
    pub(super) address: Address,
    pub(super) program: Program,
    pub(super) profiles: Vec<Profile>,
    pub(super) interval: Duration,
    pub(super) headers: Vec<Header>,
}

/// A reading of a profile, for the time since the last one.
pub(super) struct Interval {
    pub(super) name: &'static str,
    reading: Reading,
}

/// Idle waits would hide all others.
const EXTENT: export::Extent = export::Extent {
    detail: plimsoll_profiles::profile::Detail::Full,
    idle: false,
};

impl Interval {
    /// Returns the beginning and the end, in nanoseconds since 1970.
    pub(super) fn nanoseconds(&self) -> (i64, i64) {
        let from = self.reading.moment.since_1970;
        (from, from + self.reading.duration_nanos)
    }

    /// Returns the profile in pprof's format, compressed.
    pub(super) fn pprof(&self) -> Vec<u8> {
        export::pprof(&self.reading, EXTENT)
    }

    /// Returns the profile in pprof's format.
    #[cfg(feature = "otlp")]
    pub(super) fn uncompressed_pprof(&self) -> Vec<u8> {
        export::uncompressed_pprof(&self.reading, EXTENT)
    }
}

/// A running push. When it is dropped, it sends the last interval and stops: this takes 5 seconds at
/// most, after which the profiles that were not sent are lost. A program that ends without dropping it
/// loses the last interval.
#[derive(Debug)]
#[must_use = "dropping it ends the push"]
pub struct Pushing {
    shared: Arc<Shared>,
    /// `None` once it was joined.
    thread: Option<OwnThread>,
    /// The process that contains the thread.
    process: u32,
}

/// The profiles that were sent and dropped since the start of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Requests that the server accepted, one for each profile and interval.
    pub sent: u64,
    /// Profiles that were dropped because the server was away or refused them.
    pub failed: u64,
}

/// Two bells with the flags that they announce, and the counts.
#[derive(Debug)]
struct Shared {
    wakeup: Bell,
    stopped: AtomicBool,
    ending: Bell,
    ended: AtomicBool,
    sent: AtomicU64,
    failed: AtomicU64,
}

impl Pushing {
    pub(super) fn start(plan: Plan) -> io::Result<Self> {
        let _own = internal_scope::scope();
        let shared = Arc::new(Shared {
            wakeup: Bell::new()?,
            stopped: AtomicBool::new(false),
            ending: Bell::new()?,
            ended: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let of_thread = Ended(Arc::clone(&shared));
        let worker = Worker::new(plan);
        let thread = internal_thread::spawn(c"plimsoll-push", move || worker.run(&of_thread.0))?;
        Ok(Self {
            shared,
            thread: Some(thread),
            process: process_id(),
        })
    }

    /// Returns how many profiles were sent and dropped.
    pub fn counts(&self) -> Counts {
        Counts {
            sent: self.shared.sent.load(Ordering::Relaxed),
            failed: self.shared.failed.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        let _own = internal_scope::scope();
        // The child of a fork has no such thread, and its bells are those of the parent.
        if self.process != process_id() {
            return;
        }
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wakeup.ring();
        let deadline = Instant::now() + LAST_TIME;
        while !self.shared.ended.load(Ordering::Acquire) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            self.shared.ending.wait_at_most(remaining);
        }
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Reports the end of the thread when it is dropped, after a panic too.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.ending.ring();
    }
}

/// The state of the thread.
struct Worker {
    plan: Plan,
    /// The events of each profile at the end of its last interval.
    earlier: Vec<Events>,
    /// The continuous rate of CPU samples that this push has set.
    own_rate: Option<u32>,
    warned: bool,
}

impl Worker {
    /// Begins the first interval.
    fn new(plan: Plan) -> Self {
        let own_rate = follow_cpu(&plan.profiles);
        let earlier = plan.profiles.iter().map(|profile| {
            let _time = overhead::measure();
            events(profile, profile.read())
        });
        Self {
            earlier: earlier.collect(),
            plan,
            own_rate,
            warned: false,
        }
    }

    fn run(mut self, shared: &Shared) {
        let mut due = Instant::now() + self.plan.interval;
        loop {
            let is_last = shared.stopped.load(Ordering::Acquire);
            let remaining = due.saturating_duration_since(Instant::now());
            if !is_last && !remaining.is_zero() {
                if internal_thread::wait(&shared.wakeup, Some(remaining)).is_err() {
                    return;
                }
                continue;
            }
            // A round that takes longer than the interval delays the next one, which then covers more.
            due = Instant::now() + self.plan.interval;
            let time = if is_last {
                LAST_TIME
            } else {
                self.plan.interval.max(REQUEST_TIME)
            };
            self.round(shared, Instant::now() + time, is_last);
            if is_last {
                break;
            }
        }
    }

    /// Sends an interval of each profile. The last round ends at the deadline; of any other one, the time in
    /// which profiles are computed does not count, so that a busy machine sends late rather than nothing.
    fn round(&mut self, shared: &Shared, mut deadline: Instant, is_last: bool) {
        for index in 0..self.plan.profiles.len() {
            let begun = Instant::now();
            let Some(interval) = self.interval(index) else {
                continue;
            };
            let content = self.content(&interval);
            if !is_last {
                deadline += begun.elapsed();
            }
            let sent = content.and_then(|content| self.send(&content, shared, deadline));
            match sent {
                Ok(()) => {
                    shared.sent.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                    self.warn(&interval, &failure);
                }
            }
            drop(interval);
            internal_heap::trim();
        }
    }

    /// Returns the profile since its last interval; `None` if it has no samples.
    fn interval(&mut self, index: usize) -> Option<Interval> {
        let _time = overhead::measure();
        stack::refresh_modules();
        let profile = &self.plan.profiles[index];
        let later = profile.read();
        let reading = self.earlier[index].changes(later.clone());
        self.earlier[index] = events(profile, later);
        let interval = Interval {
            name: profile.name(),
            reading,
        };
        (!interval.reading.samples.is_empty()).then_some(interval)
    }

    /// Returns the content of the request for an interval.
    fn content(&self, interval: &Interval) -> Result<Content, Failure> {
        let _time = overhead::measure();
        let content = self.plan.protocol.request(&self.plan.program, interval);
        content.map_err(Failure::lasting)
    }

    fn send(&self, content: &Content, shared: &Shared, deadline: Instant) -> Result<(), Failure> {
        let plan = &self.plan;
        let mut pauses = PAUSES.into_iter();
        loop {
            let until = deadline.min(Instant::now() + REQUEST_TIME);
            let sent = client::send(&plan.address, &plan.headers, content, until);
            let failure = match sent.map(|body| plan.protocol.refusal(&body)) {
                Ok(None) => return Ok(()),
                Ok(Some(reason)) => return Err(Failure::lasting(reason)),
                Err(failure) if failure.is_temporary => failure,
                Err(failure) => return Err(failure),
            };
            let Some(pause) = pauses.next() else {
                return Err(failure);
            };
            let pause = failure.retry_after.unwrap_or(pause);
            // The server may request any number of seconds.
            let end = Instant::now().checked_add(pause);
            let Some(end) = end.filter(|&end| end < deadline) else {
                return Err(failure);
            };
            // The end of the push leaves no time for another attempt.
            while !shared.stopped.load(Ordering::Acquire) && Instant::now() < end {
                let pause = end.saturating_duration_since(Instant::now());
                if internal_thread::wait(&shared.wakeup, Some(pause)).is_err() {
                    return Err(failure);
                }
            }
            if shared.stopped.load(Ordering::Acquire) {
                return Err(failure);
            }
        }
    }

    fn warn(&mut self, interval: &Interval, failure: &Failure) {
        if !self.warned {
            self.warned = true;
            let Address {
                authority, path, ..
            } = &self.plan.address;
            warning::warn(format_args!(
                "cannot push the profile {} to http://{authority}{path}: {failure}; it is dropped, and further failures are only counted",
                interval.name
            ));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Unless the program has set another rate.
        if self.own_rate.is_some_and(|own| own == switch::cpu_rate()) {
            // Only starting can fail.
            let _ = cpu::set_rate(0);
        }
    }
}

fn events(profile: &Profile, reading: Reading) -> Events {
    Events::from_reading(reading, profile.source().custom().is_some())
}

/// Records CPU samples continuously if a profile needs them and nothing records them yet. Returns the
/// rate if it was set here.
fn follow_cpu(profiles: &[Profile]) -> Option<u32> {
    let wanted = profiles.iter().any(|profile| profile.name() == "profile");
    if !wanted || switch::cpu_rate() != 0 {
        return None;
    }
    match cpu::set_rate(cpu::DEFAULT_RATE) {
        Ok(_) => Some(cpu::DEFAULT_RATE),
        Err(error) => {
            warning::warn(format_args!("cannot record CPU samples: {error}"));
            None
        }
    }
}
