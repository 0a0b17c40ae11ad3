//! Runs one test at a time, with threads that are certain to wait, and reads the profiles.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;

use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof::{Profile, Sample};

/// Environment variable that is set where these tests run in a program without names.
pub const STRIPPED: &str = "PLIMSOLL_TEST_STRIPPED";

/// How long a lock is held after all its waiters wait.
pub const HELD: Duration = Duration::from_millis(20);

/// A guard that the running test holds.
pub struct Alone;

/// Waits until no other test runs: profiles belong to the whole process. The flag is not a lock,
/// which would be in the profiles. The release of a lock could also be recorded only when the next
/// test reads them.
pub fn alone() -> Alone {
    while ALONE.swap(true, Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    plimsoll::profile::set_block_rate(Duration::from_nanos(1));
    plimsoll::profile::set_mutex_fraction(1);
    Alone
}

static ALONE: AtomicBool = AtomicBool::new(false);

impl Drop for Alone {
    fn drop(&mut self) {
        ALONE.store(false, Ordering::Release);
    }
}

/// Both profiles at one moment.
pub struct Moment {
    pub block: Profile,
    pub mutex: Profile,
}

impl Moment {
    pub fn now() -> Self {
        Self {
            block: read_with_idle("block", Detail::Names),
            mutex: read_with_idle("mutex", Detail::Names),
        }
    }

    /// Returns the profiles once no event is added any more. Threads of the previous test may still
    /// add some, and so may threads whose waits have ended but are not recorded yet.
    pub fn quiet() -> Self {
        let deadline = Instant::now() + Duration::from_secs(30);
        let everything = |moment: &Self| {
            (
                sum(&moment.block, |_, _| true),
                sum(&moment.mutex, |_, _| true),
            )
        };
        let mut moment = Self::now();
        loop {
            thread::sleep(Duration::from_millis(3));
            let before = std::mem::replace(&mut moment, Self::now());
            if everything(&before) == everything(&moment) {
                return moment;
            }
            assert!(Instant::now() < deadline, "the profile is never empty");
        }
    }
}

/// Sums the contentions and delays of the samples for which `wanted` returns true.
pub fn sum(profile: &Profile, wanted: impl Fn(&Profile, &Sample) -> bool) -> (i64, i64) {
    let samples = profile
        .sample
        .iter()
        .filter(|sample| wanted(profile, sample));
    samples.fold((0, 0), |(count, delay), sample| {
        (count + sample.value[0], delay + sample.value[1])
    })
}

/// Returns the contentions and delay added to the samples with `function` in their stack. Without
/// names, returns those of all samples.
pub fn came(before: &Profile, after: &Profile, function: &str) -> (i64, i64) {
    let nameless = is_nameless();
    let within = |profile: &Profile, sample: &Sample| {
        let mut names = profile.names(sample).into_iter();
        nameless || names.any(|name| name.contains(function))
    };
    let (count, delay) = sum(after, within);
    let (count_before, delay_before) = sum(before, within);
    (count - count_before, delay - delay_before)
}

pub fn is_nameless() -> bool {
    std::env::var_os(STRIPPED).is_some()
}

pub fn is_lock(profile: &Profile, sample: &Sample) -> bool {
    profile
        .label(sample, "kind")
        .is_some_and(|kind| kind == "mutex" || kind.starts_with("rwlock"))
}

pub fn all_blamed(before: &Moment, after: &Moment) -> i64 {
    sum(&after.mutex, |_, _| true).1 - sum(&before.mutex, |_, _| true).1
}

pub fn all_waited(before: &Moment, after: &Moment) -> i64 {
    sum(&after.block, is_lock).1 - sum(&before.block, is_lock).1
}

/// The thread that waits. It is published without a lock, which would be in the profiles.
#[derive(Default)]
pub struct Waiter(AtomicI32);

impl Waiter {
    /// Called by the thread that is about to wait.
    pub fn is_here(&self) {
        self.0.store(thread_id(), Ordering::Release);
    }

    pub fn until_it_waits(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.0.load(Ordering::Acquire) == 0 {
            assert!(Instant::now() < deadline, "it never came");
            thread::yield_now();
        }
        until_it_waits(self.0.load(Ordering::Acquire));
    }
}

pub fn thread_id() -> i32 {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }
}

/// Waits until a thread sleeps in a futex call.
pub fn until_it_waits(thread: i32) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let read = |what| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}"));
    loop {
        let call = read("syscall").unwrap_or_default();
        let stat = read("stat").unwrap_or_default();
        let sleeps = stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S'));
        if sleeps && call.starts_with(&format!("{} ", libc::SYS_futex)) {
            return;
        }
        assert!(Instant::now() < deadline, "it does not wait: {call}");
        thread::yield_now();
    }
}
