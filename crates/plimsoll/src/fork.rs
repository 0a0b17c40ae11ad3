//! `fork`: the child has one thread, and must not find a lock held by another.
//!
//! Readers' locks are taken before the fork and released on both sides, so no reading is
//! interrupted. The data of hooks has no locks. Where hooks count themselves in and out, the child
//! resets the counts of threads that no longer exist. Counts and profiles continue unchanged.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

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

#[cfg(feature = "interpose")]
type HookGuard = MutexGuard<'static, hook::Progress>;
#[cfg(not(feature = "interpose"))]
type HookGuard = ();

type Guards = (
    MutexGuard<'static, Option<history::State>>,
    MutexGuard<'static, history::growth::Thresholds>,
    MutexGuard<'static, memory_limit::State>,
    MutexGuard<'static, Option<profile::cpu::Recording>>,
    MutexGuard<'static, cpu::Users>,
    MutexGuard<'static, Option<task::Watcher>>,
    MutexGuard<'static, ()>,
    MutexGuard<'static, ()>,
    HookGuard,
    MutexGuard<'static, Vec<RetiredList>>,
    MutexGuard<'static, ()>,
    MutexGuard<'static, ()>,
    MutexGuard<'static, Reader<HeapDelta>>,
    MutexGuard<'static, gc::Registry>,
    MutexGuard<'static, Meter>,
    MutexGuard<'static, label::Known>,
    MutexGuard<'static, Earlier>,
    MutexGuard<'static, ()>,
);

/// The locks that are held across a fork.
struct Held(UnsafeCell<Option<Guards>>);

// SAFETY: only the thread that holds the locks uses it, between `before` and `after_*`.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Registers the functions below, which the C library calls around each fork. Once.
pub(crate) fn register() {
    os::fork::register(before, after_in_parent, after_in_child);
}

extern "C" fn before() {
    // Before any lock is taken: it allocates.
    #[cfg(feature = "preload")]
    crate::preload::before_fork();
    let guards = (
        // Before all others, which a reading takes.
        history::lock(),
        history::growth::lock_thresholds(),
        memory_limit::lock(),
        // Before the next, because dropping a recording takes that.
        profile::cpu::lock_started(),
        cpu::lock(),
        // Before the others, because code that holds it takes them.
        task::lock_watcher(),
        task::lock_cut(),
        contention::lock_rates(),
        #[cfg(feature = "interpose")]
        hook::lock(),
        #[cfg(not(feature = "interpose"))]
        (),
        stack::lock_lists(),
        TABLE.lock_readers(),
        CPU_TABLE.lock_readers(),
        {
            let mut readers = HEAP.lock_readers();
            postmortem::before_fork(&mut readers);
            readers
        },
        gc::lock(),
        cpu_stats::lock(),
        label::lock(),
        profile::lock_earlier(),
        loader::lock(),
    );
    // SAFETY: this thread holds the locks, so no other uses `HELD`.
    unsafe { *HELD.0.get() = Some(guards) };
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
    if let Some((.., readers, _, _, _, _, _)) = unsafe { &mut *HELD.0.get() } {
        postmortem::after_fork_in_child(readers);
    }
    os::forget_thread_id();
    #[cfg(feature = "http")]
    os::close_on_fork::after_fork_in_child();
    HEAP.after_fork_in_child(alloc_thread::writer());
    alloc_thread::draw_anew();
    TABLE.after_fork_in_child();
    CPU_TABLE.after_fork_in_child();
    stack::forget_vanished_threads();
    contention::after_fork_in_child();
    task::after_fork_in_child();
    internal_thread::after_fork_in_child();
    wakeup::after_fork_in_child();
    thread::after_fork_in_child();
    internal_heap::unlock();
    // SAFETY: the child's only thread has held the locks since `before`.
    let mut held = unsafe { (*HELD.0.get()).take() };
    if let Some((_, _, limit, _, cpu, .., collectors, _, _, _, _)) = &mut held {
        limit.after_fork_in_child();
        cpu.after_fork_in_child();
        collectors.after_fork_in_child();
    }
    drop(held);
    #[cfg(feature = "preload")]
    crate::preload::after_fork_in_child();
}
