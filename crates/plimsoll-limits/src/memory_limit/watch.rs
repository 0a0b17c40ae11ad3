//! The thread that checks the memory in use, returns memory to the system, and calls callbacks.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_process::cgroup::LimitingGroup;
use plimsoll_process::residency;
use plimsoll_process::thread_stack;
use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};

use super::MemoryPressure;
use super::thresholds::{Callback, Threshold};
use plimsoll_core::fork::Order;
use plimsoll_core::settings::{ResolvedLimit, share};
use plimsoll_core::{internal_scope, internal_thread, overhead};
use plimsoll_stats::gc;
use plimsoll_stats::stats::{self, accounts, mem_stats};
use plimsoll_threads::thread::stacks;

/// The periods of the thread's checks. The first applies when little memory is left below the next
/// threshold.
const PERIODS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// The level from which memory is returned, in hundredths of the limit.
const PURGE: u32 = 90;

/// The minimum time between two returns of memory while the use stays above that level.
const PURGE_AGAIN: Duration = Duration::from_secs(1);

/// After memory was returned, the thread rests for this many times the duration of the return, but
/// at most [`PURGE_AGAIN`]. So if a program frees and allocates around a threshold, returns take a
/// small part of its time.
const REST: u32 = 10;

/// The maximum time until the next attempt, if the allocator kept its memory in the last one.
const MAX_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct State {
    pub(super) limit: Option<ResolvedLimit>,
    pub(super) thresholds: Vec<Threshold>,
    pub(super) next_number: u64,
    /// Wakes the thread; `None` without a thread.
    bell: Option<Arc<Bell>>,
}

static STATE: ForkLock<State> = ForkLock::with_reset(
    Order::MemoryLimit.rank(),
    State {
        limit: None,
        thresholds: Vec::new(),
        next_number: 0,
        bell: None,
    },
    State::after_fork_in_child,
);

/// Locks the state. Never held while a callback runs.
pub fn lock() -> ForkGuard<State> {
    STATE.lock()
}

impl State {
    /// Discards the bell in the child of a fork, where the thread does not exist and the bell is
    /// the parent's.
    fn after_fork_in_child(&mut self) {
        // Its memory stays: freeing it could call a hook.
        std::mem::forget(self.bell.take());
    }
}

/// Makes the thread check now; starts it if it is not running.
///
/// # Errors
/// The system's error: too many threads, or out of memory.
pub(super) fn wake() -> io::Result<()> {
    let _own = internal_scope::scope();
    let mut state = lock();
    let bell = match &state.bell {
        Some(bell) => bell,
        None => {
            let bell = Arc::new(Bell::new()?);
            let listened = Arc::clone(&bell);
            internal_thread::spawn(c"plimsoll-limit", move || watch(&listened))?;
            state.bell.insert(bell)
        }
    };
    bell.ring();
    Ok(())
}

fn watch(bell: &Bell) {
    let mut watcher = Watcher::default();
    loop {
        let period = watcher.look();
        if internal_thread::wait(bell, period).is_err() {
            return;
        }
    }
}

/// The control group of a limit.
struct Group {
    /// `None` if it was not found.
    files: Option<LimitingGroup>,
    /// The limit for which it was sought, and when.
    limit: ResolvedLimit,
    sought: Instant,
}

/// The minimum time until the group is sought again if it cannot be read: the process may have moved to another one.
const SEEK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Watcher {
    /// The time at which memory was returned, and the duration of that.
    purged: Option<(Instant, Duration)>,
    /// The time to wait before the next attempt to return memory that the allocator only holds.
    patience: Duration,
    /// The counted figure after memory was returned.
    counted: u64,
    /// The control group that has the limit, if one has it.
    group: Option<Group>,
}

impl Watcher {
    /// Checks once. Returns the time to the next check; `None` without a limit.
    fn look(&mut self) -> Option<Duration> {
        let (resolved, lowest, known) = {
            let state = lock();
            let percents = state.thresholds.iter().map(|threshold| threshold.percent);
            let lowest = percents.min().unwrap_or(PURGE).min(PURGE);
            (state.limit?, lowest, state.next_number)
        };
        let limit = resolved.bytes;
        // Below that, no figure matters.
        let from = share(limit, lowest).saturating_sub(limit / 10);
        // Most of the time this suffices: the stacks of threads are never touched completely.
        let mut used = {
            let _time = overhead::measure();
            Used::at_most(self.held_by_group(resolved, from))
        };
        if used.larger() >= share(limit, lowest) {
            let _time = overhead::measure();
            used = Used::now(self.held_by_group(resolved, from));
        }
        let resting = self.is_resting();
        if self.is_to_purge(limit, used, resting) {
            used = self.purge(resolved);
        }
        // Memory that may be merely held is reported only after it was returned.
        let measure = if resting { Used::counted } else { Used::larger };
        let mut called = false;
        while let Some((percent, callback)) = next(limit, measure(used), known) {
            let pressure = MemoryPressure {
                limit,
                used: used.larger(),
                percent,
            };
            // Allocations of the callback are the program's. The panic hook has reported a panic;
            // the next callbacks still run.
            internal_scope::outside(|| {
                let _ = catch_unwind(AssertUnwindSafe(|| callback(&pressure)));
                drop(callback);
            });
            called = true;
            if lock().limit != Some(resolved) {
                break;
            }
            used = Used::now(self.held_by_group(resolved, from));
        }
        if called && is_only_held(limit, used) {
            used = self.purge(resolved);
        }
        let near = used.larger().saturating_add(limit / 10) >= share(limit, lowest);
        Some(PERIODS[usize::from(!near)])
    }

    /// Returns the bytes that the control group holds whose limit it is; 0 if these are less than `from`, or if the limit is not of
    /// a group.
    fn held_by_group(&mut self, limit: ResolvedLimit, from: u64) -> u64 {
        if !limit.is_of_group {
            self.group = None;
            return 0;
        }
        let known = self.group.as_ref().filter(|group| group.limit == limit);
        let held = known.and_then(|group| group.files.as_ref()?.held(from));
        if held.is_none() && known.is_none_or(|group| group.sought.elapsed() >= SEEK_AGAIN) {
            let files = LimitingGroup::find();
            let held = files.as_ref().and_then(|files| files.held(from));
            self.group = Some(Group {
                files,
                limit,
                sought: Instant::now(),
            });
            return held.unwrap_or(0);
        }
        held.unwrap_or(0)
    }

    fn purge(&mut self, limit: ResolvedLimit) -> Used {
        let _time = overhead::measure();
        let begun = Instant::now();
        stats::free_os_memory();
        let ended = Instant::now();
        self.purged = Some((ended, ended - begun));
        let used = Used::now(self.held_by_group(limit, 0));
        self.counted = used.counted;
        self.patience = if is_only_held(limit.bytes, used) || used.is_of_others(limit.bytes) {
            (self.patience * 2).clamp(PERIODS[1], MAX_PATIENCE)
        } else {
            Duration::ZERO
        };
        used
    }

    /// Returns the time since memory was returned.
    fn rested(&self) -> Option<Duration> {
        self.purged.map(|(at, _)| at.elapsed())
    }

    fn is_resting(&self) -> bool {
        let took = self.purged.map_or(Duration::ZERO, |(_, took)| took);
        let rest = (took * REST).min(PURGE_AGAIN);
        self.rested().is_some_and(|rested| rested < rest)
    }

    /// Returns whether memory should be returned: before any callback; repeatedly while the use is
    /// near the limit; and while only memory that the allocator holds keeps a threshold crossed.
    fn is_to_purge(&self, limit: u64, used: Used, resting: bool) -> bool {
        let is_due = is_due(limit, used);
        let rested = |long| self.rested().is_none_or(|rested| rested >= long);
        // An attempt may succeed now even if the last one did not.
        let freed = self.counted.saturating_sub(used.counted) >= limit / 20;
        !resting
            && (is_due
                || (used.larger() >= share(limit, PURGE) && rested(PURGE_AGAIN.max(self.patience)))
                || (is_only_held(limit, used) && (freed || rested(self.patience))))
    }
}

/// Returns whether any threshold is being crossed. Rearms the thresholds that can be crossed again.
fn is_due(limit: u64, used: Used) -> bool {
    let mut state = lock();
    for threshold in &mut state.thresholds {
        threshold.look(limit, used.larger());
    }
    let mut thresholds = state.thresholds.iter();
    thresholds.any(|threshold| threshold.is_due(limit, used.larger()))
}

/// Returns whether a crossed threshold could be crossed again if the allocator returned the memory
/// that it holds beyond its blocks.
fn is_only_held(limit: u64, used: Used) -> bool {
    let state = lock();
    let mut thresholds = state.thresholds.iter();
    thresholds.any(|threshold| {
        threshold.is_over(limit, used.counted) && !threshold.is_over(limit, used.larger())
    })
}

/// Returns the lowest threshold that is being crossed, and marks it as crossed. Considers only
/// thresholds that existed when the check began.
fn next(limit: u64, used: u64, known: u64) -> Option<(u32, Callback)> {
    let mut state = lock();
    if state.limit.map(|resolved| resolved.bytes) != Some(limit) {
        return None;
    }
    let due = state.thresholds.iter_mut();
    let due = due.filter(|threshold| threshold.number < known && threshold.is_due(limit, used));
    let threshold = due.min_by_key(|threshold| threshold.percent)?;
    threshold.above = true;
    Some((threshold.percent, Arc::clone(&threshold.callback)))
}

/// The memory in use under the limit, in bytes, by three measures.
#[derive(Clone, Copy)]
struct Used {
    /// Go's figure, plus the committed bytes of accounts: touched or not, resident or not.
    counted: u64,
    /// The memory that the kernel must provide: it includes memory that the allocator does not
    /// report, and memory that it never managed.
    resident: u64,
    /// The memory of all processes of the control group whose limit it is, as far as the kernel cannot take it back; 0 for
    /// a limit of the process.
    group: u64,
}

impl Used {
    fn counted(self) -> u64 {
        self.counted
    }

    fn larger(self) -> u64 {
        self.counted.max(self.resident).max(self.group)
    }

    /// Returns whether only memory outside of the process keeps the use near the limit.
    fn is_of_others(self, limit: u64) -> bool {
        let near = share(limit, PURGE);
        self.group >= near && self.counted.max(self.resident) < near
    }

    /// Reads the figures with the whole of each stack.
    fn at_most(group: u64) -> Self {
        let stats = mem_stats();
        let accounts: u64 = accounts().iter().map(|account| account.committed).sum();
        Self {
            counted: (stats.sys - stats.heap_released).saturating_add(accounts),
            resident: residency::anonymous().unwrap_or(0),
            group,
        }
    }

    /// Reads the figures with the touched part of each stack: the system never provided the rest.
    fn now(group: u64) -> Self {
        let stacks = stacks::all().map(|stack| stack.range);
        let stacks = stacks.chain([thread_stack::main()]);
        let (mut all, mut touched) = (0, 0);
        for stack in stacks {
            all += stack.len() as u64;
            touched += residency::resident(&stack) as u64;
        }
        let mut used = Self::at_most(group);
        used.counted = used
            .counted
            .saturating_sub(all)
            .saturating_add(touched.min(all));
        used
    }
}

/// Sets the limit, rearms all thresholds, and passes the limit to the collectors. Returns the
/// previous limit.
pub(super) fn set(limit: Option<ResolvedLimit>) -> Option<u64> {
    gc::set_memory_limit(limit.map_or(u64::MAX, |limit| limit.bytes));
    let mut state = lock();
    for threshold in &mut state.thresholds {
        threshold.above = false;
    }
    let before = std::mem::replace(&mut state.limit, limit);
    before.map(|limit| limit.bytes)
}
