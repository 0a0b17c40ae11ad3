//! The thread that looks for threads without a timer while samples are recorded.
//!
//! It makes timers for threads whose creation is not seen, and removes those of threads whose end is
//! not seen. It also counts the CPU time of threads that block the signal, whose samples would be
//! missing.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_process::task_file::TaskDirectory;
use plimsoll_sys::hash::{HashMap, HashSet};
use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::clock;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::primitives::Ordering;

use super::super::super::{Missing, PAGES_AHEAD};
use super::{RECORDING, handler, timers};
use plimsoll_core::fork::Order;
use plimsoll_core::label::{self, Labels};
use plimsoll_core::stack::CPU_TABLE;
use plimsoll_core::{internal_thread, overhead, settings, wakeup};
use plimsoll_threads::thread;

/// The shortest interval between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// The interval is at least this many times the duration of a look.
const REST: u32 = 200;

/// The number of periods without a sample after which a thread is asked whether it blocks the signal.
/// The kernel sends the signal within a clock tick, which is at most ten periods.
const LAG: u64 = 20;

/// Wakes the thread of the current recording.
static BELL: ForkLock<Option<Arc<Bell>>> =
    ForkLock::with_reset(Order::CpuWatch.rank(), None, |bell| {
        // The child does not have the thread.
        drop(bell.take());
    });

/// Whether the process may have threads of Plimsoll. A program into which a library is preloaded
/// has none as long as it has one thread.
fn may_have_threads() -> bool {
    !settings::IS_PRELOADED || wakeup::bell().is_some()
}

/// Starts the thread, if there is none. Without it, timers are made by the threads themselves only.
pub(super) fn start(recording: u64) {
    let mut running = BELL.lock();
    if running.is_some() || !may_have_threads() {
        return;
    }
    let Ok(bell) = Bell::new() else { return };
    let bell = Arc::new(bell);
    let rings = Arc::clone(&bell);
    *running = Some(bell);
    // A failure leaves the recording without the thread, as described above.
    let _ = internal_thread::spawn(c"plimsoll-cpu", move || watch(recording, &rings));
}

/// Ends the thread.
pub(super) fn stop() {
    if let Some(bell) = BELL.lock().take() {
        bell.ring();
    }
}

fn watch(recording: u64, bell: &Bell) {
    let mut interval = INTERVAL;
    loop {
        let goes_on = internal_thread::wait(bell, Some(interval)).is_ok();
        if !goes_on || RECORDING.load(Ordering::SeqCst) != recording {
            return;
        }
        let _time = overhead::measure();
        let began = clock::now();
        look();
        let took = Duration::from_nanos(clock::now().saturating_sub(began));
        interval = INTERVAL.max(took * REST);
    }
}

/// Gives each thread of the program a timer, and removes the timers of threads that have ended.
pub(super) fn look() {
    CPU_TABLE.prepare_pages(PAGES_AHEAD, false);
    let Some(threads) = thread::list() else {
        return;
    };
    let mut without: HashSet<i32> = threads.program.into_iter().collect();
    let mut lagging = Vec::new();
    timers::for_each(|id, entry| {
        without.remove(&id);
        let turn = entry.turn();
        if entry.is_dead() || internal_thread::is_own(id) {
            entry.release(turn);
        } else if entry.lag(id) > LAG {
            lagging.push((id, entry));
        }
    });
    let failed = without.into_iter().filter(|&id| !timers::arm(id)).count();
    timers::note_unwatched(failed as u64);
    count_blocked(&lagging);
}

/// Counts the CPU time of those threads that block the signal.
fn count_blocked(lagging: &[(i32, &timers::Entry)]) {
    let (Some(signal), false) = (handler::signal(), lagging.is_empty()) else {
        return;
    };
    let Ok(tasks) = TaskDirectory::open() else {
        return;
    };
    let labels: HashMap<i32, Labels> = label::of_threads().collect();
    for &(id, entry) in lagging {
        if thread::blocks(&tasks, id, signal) {
            let labels = labels.get(&id).copied().unwrap_or(Labels::NONE);
            entry.count_rest(id, Missing::Blocked, labels);
        }
    }
}
