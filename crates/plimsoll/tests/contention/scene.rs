//! One test at a time, threads that certainly wait, and what the profiles say of it.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::Detail;

use crate::pprof::{Profile, Sample};

/// Set where these tests run in a program without names.
pub const STRIPPED: &str = "PLIMSOLL_TEST_STRIPPED";

/// How long a lock is held once all who want it wait.
pub const HELD: Duration = Duration::from_millis(20);

/// Held by the test that is running.
pub struct Alone;

/// Profiles are the process's: one test at a time. Not by a lock, which would be in them, and whose
/// release may still be on its way there when the next test looks.
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

/// Both profiles at a moment.
pub struct Moment {
    pub block: Profile,
    pub mutex: Profile,
}

impl Moment {
    pub fn now() -> Self {
        Self {
            block: Profile::of_all("block", Detail::Names),
            mutex: Profile::of_all("mutex", Detail::Names),
        }
    }

    /// When nothing comes any more: neither from the threads of the test before, nor of waits that
    /// were ended, but whose threads have yet to say so.
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
            assert!(Instant::now() < deadline, "there is always something");
        }
    }
}

/// Contentions and delay of the samples that `wanted` picks.
pub fn sum(profile: &Profile, wanted: impl Fn(&Profile, &Sample) -> bool) -> (i64, i64) {
    let samples = profile
        .sample
        .iter()
        .filter(|sample| wanted(profile, sample));
    samples.fold((0, 0), |(count, delay), sample| {
        (count + sample.value[0], delay + sample.value[1])
    })
}

/// What came to the samples with `function` in their stack; to all of them where there are no
/// names.
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

/// Who waits. Told without a lock, which would be in the profiles.
#[derive(Default)]
pub struct Waiter(AtomicI32);

impl Waiter {
    /// By the thread that is about to wait.
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
    // SAFETY: always callable.
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
