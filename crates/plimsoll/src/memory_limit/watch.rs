//! The thread that looks how much memory is in use, gives some back, and calls callbacks.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::MemoryPressure;
use super::thresholds::{Callback, Threshold, share};
use crate::alloc::thread::outside_own_scopes;
use crate::os::bell::Bell;
use crate::os::{residency, thread_stack};
use crate::primitives::Mutex;
use crate::stats::{self, accounts, mem_stats};
use crate::thread::stacks;
use crate::{gc, own, own_thread, own_time};

/// How long the thread sleeps between two looks: the first when there is little left to the next
/// threshold.
const PERIODS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// From here on memory is given back, in hundredths of the limit.
const PURGE: u32 = 90;

/// How long it takes until memory is given back again, while there is still too much.
const PURGE_AGAIN: Duration = Duration::from_secs(1);

/// After memory was given back, nothing is given back for so many times as long as that took, but
/// at most [`PURGE_AGAIN`]: where a program frees and allocates around a threshold, it is a small
/// part of its time.
const REST: u32 = 10;

/// How long it takes at most until it is tried again, if what the allocator held was still held
/// when it was asked to give it back.
const MOST_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct State {
    pub(super) limit: Option<u64>,
    pub(super) thresholds: Vec<Threshold>,
    pub(super) next_number: u64,
    /// Wakes the thread; `None` if there is none.
    bell: Option<Arc<Bell>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    limit: None,
    thresholds: Vec::new(),
    next_number: 0,
    bell: None,
});

/// Never held while a callback is called.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl State {
    /// In the child of a fork: there is no thread, and its bell is the parent's.
    pub(crate) fn after_fork_in_child(&mut self) {
        // Its descriptor is left open: closing it may be a hook's business.
        std::mem::forget(self.bell.take());
    }
}

/// Has the thread look now; starts it if there is none.
///
/// # Errors
/// The system's: there are too many descriptors or threads, or there is no memory.
pub(super) fn wake() -> io::Result<()> {
    let _own = own::scope();
    let mut state = lock();
    let bell = match &state.bell {
        Some(bell) => bell,
        None => {
            let bell = Arc::new(Bell::new()?);
            let listened = Arc::clone(&bell);
            own_thread::spawn(c"plimsoll-limit", move || watch(&listened))?;
            state.bell.insert(bell)
        }
    };
    bell.ring();
    Ok(())
}

fn watch(bell: &Bell) {
    let mut watcher = Watcher::default();
    loop {
        match watcher.look() {
            Some(period) => bell.wait_at_most(period),
            None => bell.wait(None),
        }
    }
}

#[derive(Default)]
struct Watcher {
    /// When memory was given back, and how long that took.
    purged: Option<(Instant, Duration)>,
    /// How long it is waited before the allocator is asked again for what it only holds.
    patience: Duration,
    /// How much was counted when memory had been given back.
    counted: u64,
}

impl Watcher {
    /// Looks once; returns in what time to look again, `None` if there is no limit.
    fn look(&mut self) -> Option<Duration> {
        let (limit, lowest, known) = {
            let state = lock();
            let percents = state.thresholds.iter().map(|threshold| threshold.percent);
            let lowest = percents.min().unwrap_or(PURGE).min(PURGE);
            (state.limit?, lowest, state.next_number)
        };
        // Most of the time this is enough: the stacks of threads are never touched as a whole.
        let mut used = {
            let _time = own_time::measure();
            Used::at_most()
        };
        if used.larger() >= share(limit, lowest) {
            let _time = own_time::measure();
            used = Used::now();
        }
        let resting = self.is_resting();
        if self.is_to_purge(limit, used, resting) {
            used = self.purge(limit);
        }
        // What may only be held is told once it was given back.
        let measure = if resting { Used::counted } else { Used::larger };
        let mut called = false;
        while let Some((percent, callback)) = next(limit, measure(used), known) {
            let pressure = MemoryPressure {
                limit,
                used: used.larger(),
                percent,
            };
            // What it does is the program's. A panic has been reported; the others are called.
            outside_own_scopes(|| {
                let _ = catch_unwind(AssertUnwindSafe(|| callback(&pressure)));
                drop(callback);
            });
            called = true;
            if lock().limit != Some(limit) {
                break;
            }
            used = Used::now();
        }
        if called && is_only_held(limit, used) {
            used = self.purge(limit);
        }
        let near = used.larger().saturating_add(limit / 10) >= share(limit, lowest);
        Some(PERIODS[usize::from(!near)])
    }

    fn purge(&mut self, limit: u64) -> Used {
        let _time = own_time::measure();
        let begun = Instant::now();
        stats::free_os_memory();
        let ended = Instant::now();
        self.purged = Some((ended, ended - begun));
        let used = Used::now();
        self.counted = used.counted;
        self.patience = if is_only_held(limit, used) {
            (self.patience * 2).clamp(PERIODS[1], MOST_PATIENCE)
        } else {
            Duration::ZERO
        };
        used
    }

    /// How long it is since memory was given back.
    fn rested(&self) -> Option<Duration> {
        self.purged.map(|(at, _)| at.elapsed())
    }

    fn is_resting(&self) -> bool {
        let took = self.purged.map_or(Duration::ZERO, |(_, took)| took);
        let rest = (took * REST).min(PURGE_AGAIN);
        self.rested().is_some_and(|rested| rested < rest)
    }

    /// Whether memory is to be given back: before any callback, and now and then while there is
    /// nearly too much, or while a threshold is only held up by what the allocator holds.
    fn is_to_purge(&self, limit: u64, used: Used, resting: bool) -> bool {
        let is_due = is_due(limit, used);
        let rested = |long| self.rested().is_none_or(|rested| rested >= long);
        // What was in vain may not be any more.
        let freed = self.counted.saturating_sub(used.counted) >= limit / 20;
        !resting
            && (is_due
                || (used.larger() >= share(limit, PURGE) && rested(PURGE_AGAIN))
                || (is_only_held(limit, used) && (freed || rested(self.patience))))
    }
}

/// Whether any threshold is being crossed. Those that can be crossed again now are noticed.
fn is_due(limit: u64, used: Used) -> bool {
    let mut state = lock();
    for threshold in &mut state.thresholds {
        threshold.look(limit, used.larger());
    }
    let mut thresholds = state.thresholds.iter();
    thresholds.any(|threshold| threshold.is_due(limit, used.larger()))
}

/// Whether a threshold that was crossed could be crossed again if the allocator gave back what it
/// holds beside blocks.
fn is_only_held(limit: u64, used: Used) -> bool {
    let state = lock();
    let mut thresholds = state.thresholds.iter();
    thresholds.any(|threshold| {
        threshold.is_over(limit, used.counted) && !threshold.is_over(limit, used.larger())
    })
}

/// The lowest threshold that is being crossed, as one that was; of those that were known when the
/// look began.
fn next(limit: u64, used: u64, known: u64) -> Option<(u32, Callback)> {
    let mut state = lock();
    if state.limit != Some(limit) {
        return None;
    }
    let due = state.thresholds.iter_mut();
    let due = due.filter(|threshold| threshold.number < known && threshold.is_due(limit, used));
    let threshold = due.min_by_key(|threshold| threshold.percent)?;
    threshold.above = true;
    Some((threshold.percent, Arc::clone(&threshold.callback)))
}

/// How much is in use of what is limited, in bytes, by two measures.
#[derive(Clone, Copy)]
struct Used {
    /// Go's, with what accounts have committed: touched or not, in memory or not.
    counted: u64,
    /// What the kernel would have to find room for: also what the allocator does not tell of, and
    /// what it never knew of.
    resident: u64,
}

impl Used {
    fn counted(self) -> u64 {
        self.counted
    }

    fn larger(self) -> u64 {
        self.counted.max(self.resident)
    }

    /// With all of each stack.
    fn at_most() -> Self {
        let stats = mem_stats();
        let accounts: u64 = accounts().iter().map(|account| account.committed).sum();
        Self {
            counted: (stats.sys - stats.heap_released).saturating_add(accounts),
            resident: residency::anonymous().unwrap_or(0),
        }
    }

    /// With what has been touched of each stack: the rest was never had of the system.
    fn now() -> Self {
        let stacks = stacks::all().map(|stack| stack.range);
        let stacks = stacks.chain([thread_stack::main()]);
        let (mut all, mut touched) = (0, 0);
        for stack in stacks {
            all += stack.len() as u64;
            touched += residency::resident(&stack) as u64;
        }
        let mut used = Self::at_most();
        used.counted = used
            .counted
            .saturating_sub(all)
            .saturating_add(touched.min(all));
        used
    }
}

/// Tells collectors.
pub(super) fn set(limit: Option<u64>) -> Option<u64> {
    gc::set_memory_limit(limit.unwrap_or(u64::MAX));
    let mut state = lock();
    for threshold in &mut state.thresholds {
        threshold.above = false;
    }
    std::mem::replace(&mut state.limit, limit)
}
