//! The thread that looks how much memory is in use, gives some back, and calls callbacks.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::MemoryPressure;
use super::thresholds::{Callback, Threshold, share};
use crate::alloc::thread::outside_own_scopes;
use crate::os::bell::Bell;
use crate::os::{residency, thread_stack};
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
    purged: Option<Instant>,
}

impl Watcher {
    /// Looks once; returns in what time to look again, `None` if there is no limit.
    fn look(&mut self) -> Option<Duration> {
        let (limit, lowest) = {
            let state = lock();
            let percents = state.thresholds.iter().map(|threshold| threshold.percent);
            (state.limit?, percents.min().unwrap_or(PURGE).min(PURGE))
        };
        // Most of the time this is enough: the stacks of threads are never touched as a whole.
        let mut used = {
            let _time = own_time::measure();
            used_at_most()
        };
        if used >= share(limit, lowest) {
            let _time = own_time::measure();
            used = used_now();
        }
        if self.is_to_purge(limit, used) {
            let _time = own_time::measure();
            stats::free_os_memory();
            self.purged = Some(Instant::now());
            used = used_now();
        }
        while let Some((percent, callback)) = next(limit, used) {
            let pressure = MemoryPressure {
                limit,
                used,
                percent,
            };
            // What it does is the program's. A panic has been reported; the others are called.
            outside_own_scopes(|| {
                let _ = catch_unwind(AssertUnwindSafe(|| callback(&pressure)));
                drop(callback);
            });
            if lock().limit != Some(limit) {
                break;
            }
            used = used_now();
        }
        let near = used.saturating_add(limit / 10) >= share(limit, lowest);
        Some(PERIODS[usize::from(!near)])
    }

    /// Whether memory is to be given back: before any callback, and now and then while there is
    /// nearly too much.
    fn is_to_purge(&self, limit: u64, used: u64) -> bool {
        let mut state = lock();
        for threshold in &mut state.thresholds {
            threshold.look(limit, used);
        }
        let mut thresholds = state.thresholds.iter();
        if thresholds.any(|threshold| threshold.is_due(limit, used)) {
            return true;
        }
        let rested = self.purged.is_none_or(|at| at.elapsed() >= PURGE_AGAIN);
        used >= share(limit, PURGE) && rested
    }
}

/// The lowest threshold that is being crossed, as one that was.
fn next(limit: u64, used: u64) -> Option<(u32, Callback)> {
    let mut state = lock();
    if state.limit != Some(limit) {
        return None;
    }
    let due = state.thresholds.iter_mut();
    let due = due.filter(|threshold| threshold.is_due(limit, used));
    let threshold = due.min_by_key(|threshold| threshold.percent)?;
    threshold.above = true;
    Some((threshold.percent, Arc::clone(&threshold.callback)))
}

/// Go's measure of what is limited, with all of each stack.
fn used_at_most() -> u64 {
    let stats = mem_stats();
    let accounts: u64 = accounts().iter().map(|account| account.committed).sum();
    (stats.sys - stats.heap_released).saturating_add(accounts)
}

/// The same, with what has been touched of each stack: the rest was never had of the system.
pub(super) fn used_now() -> u64 {
    let stacks = stacks::all().map(|stack| stack.range);
    let stacks = stacks.chain([thread_stack::main()]);
    let (mut all, mut touched) = (0, 0);
    for stack in stacks {
        all += stack.len() as u64;
        touched += residency::resident(&stack) as u64;
    }
    used_at_most()
        .saturating_sub(all)
        .saturating_add(touched.min(all))
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
