//! `fork`: the child has one thread, and must not find a lock held by another.
//!
//! Readers' locks are taken before the fork and released on both sides, so no reading is
//! interrupted. The data of hooks has no locks. Where hooks count themselves in and out, the child
//! resets the counts of threads that no longer exist. Counts and profiles continue unchanged.
//!
//! The thread's signals are blocked meanwhile, because a signal handler may fork as well.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use plimsoll_sys::os::signals::BlockedSignals;
use plimsoll_sys::os::{self, loader};

use crate::alloc::counts::{HEAP, HeapDelta};
use crate::alloc::thread as alloc_thread;
use crate::contention;
use crate::cpu;
use crate::gc;
use crate::history;
#[cfg(feature = "interpose")]
use crate::hook;
use crate::label;
use crate::ledger::Reader;
use crate::profile::{self, Earlier};
use crate::stack::{self, CPU_TABLE, RetiredList, TABLE};
use crate::stats::cpu_stats::{self, Meter};
use crate::{internal_heap, internal_thread, memory_limit, postmortem, task, thread, wakeup};

type Guard<T> = MutexGuard<'static, T>;

/// What is held across a fork, in the order in which it is acquired and released. Fields whose names begin with
/// an underscore are only held.
struct Held {
    // Before all others, which a reading takes.
    _history: Guard<Option<history::State>>,
    _thresholds: Guard<history::growth::Thresholds>,
    limit: Guard<memory_limit::State>,
    // Before the next, because dropping a recording takes that.
    _recording: Guard<Option<profile::cpu::Recording>>,
    cpu: Guard<cpu::Users>,
    // Before the others, because code that holds it takes them.
    _watcher: Guard<Option<task::Watcher>>,
    _tasks: Guard<()>,
    _rates: Guard<()>,
    #[cfg(feature = "interpose")]
    _hook: Guard<hook::Progress>,
    _lists: Guard<Vec<RetiredList>>,
    _table: Guard<()>,
    _cpu_table: Guard<()>,
    heap: Guard<Reader<HeapDelta>>,
    collectors: Guard<gc::Registry>,
    _meter: Guard<Meter>,
    _labels: Guard<label::Known>,
    _earlier: Guard<Earlier>,
    _loader: Guard<()>,
    // Acquired first and released last: signals arrive when no lock is held.
    signals: BlockedSignals,
}

/// Filled between `before` and `after_*`.
struct Place(UnsafeCell<Option<Held>>);

// SAFETY: only the thread that holds the locks uses it, between `before` and `after_*`.
unsafe impl Sync for Place {}

static HELD: Place = Place(UnsafeCell::new(None));

/// Registers the functions below, which the C library calls around each fork. Once.
pub(crate) fn register() {
    os::fork::register(before, after_in_parent, after_in_child);
}

extern "C" fn before() {
    let signals = BlockedSignals::new();
    // Before any lock is taken: it allocates.
    #[cfg(feature = "preload")]
    crate::preload::before_fork();
    let held = Held {
        _history: history::lock(),
        _thresholds: history::growth::lock_thresholds(),
        limit: memory_limit::lock(),
        _recording: profile::cpu::lock_started(),
        cpu: cpu::lock(),
        _watcher: task::lock_watcher(),
        _tasks: task::lock_cut(),
        _rates: contention::lock_rates(),
        #[cfg(feature = "interpose")]
        _hook: hook::lock(),
        _lists: stack::lock_lists(),
        _table: TABLE.lock_readers(),
        _cpu_table: CPU_TABLE.lock_readers(),
        heap: {
            let mut readers = HEAP.lock_readers();
            postmortem::before_fork(&mut readers);
            readers
        },
        collectors: gc::lock(),
        _meter: cpu_stats::lock(),
        _labels: label::lock(),
        _earlier: profile::lock_earlier(),
        _loader: loader::lock(),
        signals,
    };
    // SAFETY: this thread holds the locks, so no other uses `HELD`.
    unsafe { *HELD.0.get() = Some(held) };
    internal_heap::lock();
    thread::before_fork();
}

extern "C" fn after_in_parent() {
    internal_heap::unlock();
    postmortem::after_fork_in_parent();
    // SAFETY: this thread has held the locks since `before`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_in_child() {
    // SAFETY: the child's only thread has held the locks since `before`.
    if let Some(held) = unsafe { &mut *HELD.0.get() } {
        postmortem::after_fork_in_child(&mut held.heap);
    }
    os::forget_ids();
    #[cfg(feature = "http")]
    os::close_on_fork::after_fork_in_child();
    HEAP.after_fork_in_child(alloc_thread::writer());
    alloc_thread::draw_anew();
    TABLE.discard_writers();
    CPU_TABLE.discard_writers();
    stack::forget_vanished_threads();
    contention::after_fork_in_child();
    task::after_fork_in_child();
    internal_thread::after_fork_in_child();
    wakeup::after_fork_in_child();
    thread::after_fork_in_child();
    internal_heap::unlock();
    // SAFETY: the child's only thread has held the locks since `before`.
    let held = unsafe { (*HELD.0.get()).take() };
    let _signals = held.map(|mut held| {
        held.limit.after_fork_in_child();
        held.cpu.after_fork_in_child();
        held.collectors.after_fork_in_child();
        held.signals
    });
    #[cfg(feature = "preload")]
    crate::preload::after_fork_in_child();
}
