//! Runs threads that wait, and reads the profiles.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll::profile;

use plimsoll_checks::profile::read_profile;
use plimsoll_testkit::pprof::{Profile, Sample, without_arguments};

/// The number of waiting threads.
pub const WAITERS: usize = 4;

/// How long the threads are kept waiting.
pub const HELD: Duration = Duration::from_millis(100);

/// A guard under which everything is recorded. Profiles belong to the whole process, so only one
/// test at a time holds it.
pub struct Recording(());

/// Whether a test holds a [`Recording`]. This is not a lock, which would be in the profiles. The
/// release of a lock could also be recorded only when the next test reads them.
static ALONE: AtomicBool = AtomicBool::new(false);

impl Recording {
    pub fn all() -> Self {
        let none = Self::none();
        profile::set_block_rate(Duration::from_nanos(1));
        profile::set_mutex_fraction(1);
        none
    }

    /// Returns a guard under which no test records anything.
    #[allow(dead_code, reason = "not for every test")]
    pub fn none() -> Self {
        while ALONE.swap(true, Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Self(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        profile::set_block_rate(Duration::ZERO);
        profile::set_mutex_fraction(0);
        ALONE.store(false, Ordering::Release);
    }
}

/// Runs [`WAITERS`] threads that call `wait`, and calls `let_go` some time after they all sleep.
/// Returns the time from the start of the first to the end of the last.
pub fn blocked(wait: impl Fn() + Sync, let_go: impl FnOnce()) -> Duration {
    blocked_by_each(WAITERS, |_| wait(), let_go)
}

/// Like [`blocked`] with `count` threads, each of which receives its index.
pub fn blocked_by_each(
    count: usize,
    wait: impl Fn(usize) + Sync,
    let_go: impl FnOnce(),
) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let _releaser = Releaser;
        for number in 0..count {
            let id = AtomicUsize::new(0);
            let id: &'static AtomicUsize = Box::leak(Box::new(id));
            let wait = &wait;
            scope.spawn(move || {
                // SAFETY: has no preconditions.
                id.store(unsafe { libc::gettid() } as usize, Ordering::Release);
                wait(number);
            });
            // Starts one thread after another, so that each is past its start-up when it sleeps.
            until(|| id.load(Ordering::Acquire) != 0);
            until_asleep(id.load(Ordering::Acquire) as i32);
        }
        std::thread::sleep(HELD);
        let_go();
    });
    // Includes the time in which threads that get a lock in turn wait for one another.
    start.elapsed()
}

/// Releases the waiting threads of a scope. On a panic, the threads would wait for ever, and the
/// scope for them, so the process aborts instead.
pub struct Releaser;

impl Drop for Releaser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The captured output of the tests is lost with the process, except for this line.
            let thread = std::thread::current();
            let _ = writeln!(
                std::io::stderr(),
                "{}: the waiting threads are never released (--nocapture shows why)",
                thread.name().unwrap_or_default()
            );
            std::process::abort();
        }
    }
}

/// Waits until `holds` returns true.
pub fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never is");
        std::thread::yield_now();
    }
}

/// Waits until a thread of this process sleeps.
pub fn until_asleep(id: i32) {
    until(|| sleeps(id));
}

/// Reports whether a thread of this process sleeps.
fn sleeps(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
    // The name may contain any character, even a parenthesis.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Sums over a profile's samples with a function in their stack.
#[derive(Debug, Default)]
pub struct Recorded {
    pub events: i64,
    pub delay: Duration,
    /// The values of the label `kind`, sorted.
    pub kinds: Vec<String>,
    /// The names of the innermost functions, sorted.
    pub leaves: Vec<String>,
}

/// Sums over the samples of a profile with `function` in the stack.
pub fn recorded(profile: &str, function: &str) -> Recorded {
    recorded_at(profile, function, |_| true)
}

/// Like [`recorded`], only for samples whose innermost function `at` accepts.
pub fn recorded_at(profile: &str, function: &str, at: impl Fn(&str) -> bool) -> Recorded {
    let profile = read_profile(profile);
    let mut recorded = Recorded::default();
    for sample in &profile.sample {
        if !has(&profile, sample, function) || !at(profile.names(sample)[0]) {
            continue;
        }
        recorded.events += sample.value[0];
        recorded.delay += Duration::from_nanos(sample.value[1] as u64);
        recorded.kinds.push(kind(&profile, sample).to_owned());
        recorded.leaves.push(profile.names(sample)[0].to_owned());
    }
    recorded.kinds.sort();
    recorded.kinds.dedup();
    recorded.leaves.sort();
    recorded.leaves.dedup();
    recorded
}

/// Reports whether a function with this name is in the stack.
pub fn has(profile: &Profile, sample: &Sample, function: &str) -> bool {
    let names = profile.names(sample);
    names.iter().any(|name| is(name, function))
}

/// Returns the value of the label `kind`.
pub fn kind<'a>(profile: &'a Profile, sample: &Sample) -> &'a str {
    let label = sample
        .label
        .iter()
        .find(|label| profile.text(label.key) == "kind");
    profile.text(label.expect("every wait is of a kind").str)
}

/// Reports whether the last part of a name is `function`, disregarding type arguments and closures.
fn is(name: &str, function: &str) -> bool {
    let name = name
        .replace("::{{closure}}", "")
        .replace("::{closure#0}", "");
    let name = without_arguments(&name);
    name == function || name.ends_with(&format!("::{function}"))
}

impl Recorded {
    /// Checks that `waiters` threads waited, on average, at least [`HELD`] and at most `at_most`,
    /// with a tolerance of 10 %.
    #[track_caller]
    pub fn is_of(&self, waiters: usize, at_most: Duration) {
        let (least, most) = (HELD.mul_f64(0.9), at_most.mul_f64(1.1));
        assert!(
            self.delay >= least * waiters as u32 && self.delay <= most * waiters as u32,
            "{self:?}, expected {waiters} of {least:?} to {most:?}"
        );
    }

    /// Checks that all samples have this kind, and that their leaf is this method of a type with
    /// this path.
    #[track_caller]
    pub fn is_at(&self, kind: &str, path: &str, method: &str) {
        assert_eq!(self.kinds, [kind], "{self:?}");
        // Without debug information there are no inlined calls.
        if cfg!(feature = "symbolize") {
            for leaf in &self.leaves {
                let leaf = leaf.trim_start_matches('<');
                assert!(
                    leaf.starts_with(path) && is(leaf, method),
                    "{self:?}, expected {method} of {path}"
                );
            }
        }
    }
}
