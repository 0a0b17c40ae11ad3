//! Threads that wait, and what the profiles say of them.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll::profile;

use crate::pprof::{Profile, Sample, without_arguments};

/// How many wait.
pub const WAITERS: usize = 4;

/// How long what they wait for takes.
pub const HELD: Duration = Duration::from_millis(100);

/// Everything is recorded while it lives; profiles are the process's, so only one test at a time
/// has one.
pub struct Recording(());

/// Whether some test has one. No lock, which would be in the profiles, and whose release may still
/// be on its way there when the next test looks.
static ALONE: AtomicBool = AtomicBool::new(false);

impl Recording {
    pub fn all() -> Self {
        let none = Self::none();
        profile::set_block_rate(Duration::from_nanos(1));
        profile::set_mutex_fraction(1);
        none
    }

    /// The opposite: nothing is recorded, by any other test either.
    #[allow(dead_code, reason = "not for every test that there is")]
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

/// Has [`WAITERS`] threads call `wait`, calls `let_go` some time after they all sleep, and returns
/// how long it was from when the first of them was started until the last had ended.
pub fn blocked(wait: impl Fn() + Sync, let_go: impl FnOnce()) -> Duration {
    blocked_by_each(WAITERS, |_| wait(), let_go)
}

/// The same with a number of threads, each of which is told which one it is.
pub fn blocked_by_each(
    count: usize,
    wait: impl Fn(usize) + Sync,
    let_go: impl FnOnce(),
) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let _who_lets_go = WhoLetsGo;
        for number in 0..count {
            let id = AtomicUsize::new(0);
            let id: &'static AtomicUsize = Box::leak(Box::new(id));
            let wait = &wait;
            scope.spawn(move || {
                // SAFETY: it has no conditions.
                id.store(unsafe { libc::gettid() } as usize, Ordering::Release);
                wait(number);
            });
            // One after the other: so each is past its thread's own beginnings.
            until(|| id.load(Ordering::Acquire) != 0);
            until_asleep(id.load(Ordering::Acquire) as i32);
        }
        std::thread::sleep(HELD);
        let_go();
    });
    // Those who get a lock one after the other wait for one another, too.
    start.elapsed()
}

/// Whoever lets threads of a scope go that wait. If that ends in a panic, they wait for ever, and
/// the scope does so for them: so the process ends instead.
pub struct WhoLetsGo;

impl Drop for WhoLetsGo {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What tests print is lost with the process, but for this.
            let thread = std::thread::current();
            let _ = writeln!(
                std::io::stderr(),
                "{}: nobody lets those go who wait (--nocapture says why)",
                thread.name().unwrap_or_default()
            );
            std::process::abort();
        }
    }
}

/// Returns once it holds.
pub fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never is");
        std::thread::yield_now();
    }
}

/// Returns once a thread of this process sleeps.
pub fn until_asleep(id: i32) {
    until(|| sleeps(id));
}

/// Whether a thread of this process sleeps.
fn sleeps(id: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).unwrap_or_default();
    // The name may contain anything, a parenthesis too.
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// What a profile says of all that has a function in its stack.
#[derive(Debug, Default)]
pub struct Told {
    pub events: i64,
    pub delay: Duration,
    /// The values of the label `kind` that there are, sorted.
    pub kinds: Vec<String>,
    /// The names of the innermost functions that there are, sorted.
    pub leaves: Vec<String>,
}

/// What the profile of that name says of all with `function` in the stack.
pub fn told(profile: &str, function: &str) -> Told {
    told_at(profile, function, |_| true)
}

/// The same, of those only whose innermost function is one that `at` says.
pub fn told_at(profile: &str, function: &str, at: impl Fn(&str) -> bool) -> Told {
    let profile = Profile::of(profile);
    let mut told = Told::default();
    for sample in &profile.sample {
        if !has(&profile, sample, function) || !at(profile.names(sample)[0]) {
            continue;
        }
        told.events += sample.value[0];
        told.delay += Duration::from_nanos(sample.value[1] as u64);
        told.kinds.push(kind(&profile, sample).to_owned());
        told.leaves.push(profile.names(sample)[0].to_owned());
    }
    told.kinds.sort();
    told.kinds.dedup();
    told.leaves.sort();
    told.leaves.dedup();
    told
}

/// Whether a function of that name is in the stack.
pub fn has(profile: &Profile, sample: &Sample, function: &str) -> bool {
    let names = profile.names(sample);
    names.iter().any(|name| is(name, function))
}

/// The value of the label `kind`.
pub fn kind<'a>(profile: &'a Profile, sample: &Sample) -> &'a str {
    let label = sample
        .label
        .iter()
        .find(|label| profile.text(label.key) == "kind");
    profile.text(label.expect("every wait is of a kind").str)
}

/// Whether the last part of a name, type arguments and closures aside, is that.
fn is(name: &str, function: &str) -> bool {
    let name = name
        .replace("::{{closure}}", "")
        .replace("::{closure#0}", "");
    let name = without_arguments(&name);
    name == function || name.ends_with(&format!("::{function}"))
}

impl Told {
    /// Each of so many waited as long as the thing took, all in all, and nothing more.
    #[track_caller]
    pub fn is_of(&self, waiters: usize, at_most: Duration) {
        let (least, most) = (HELD.mul_f64(0.9), at_most.mul_f64(1.1));
        assert!(
            self.delay >= least * waiters as u32 && self.delay <= most * waiters as u32,
            "{self:?}, expected {waiters} of {least:?} to {most:?}"
        );
    }

    /// They are all of that kind, and are shown at that method of what begins with that path.
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
