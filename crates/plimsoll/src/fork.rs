//! `fork`: the child has one thread, and must find nothing held by the others.
//!
//! Readers' locks are taken before and given back on both sides, so no reading is cut in half. What
//! hooks use has no locks; where hooks count themselves in and out, the child forgets those that
//! are gone. Counts and profiles go on from where they were.

use std::cell::UnsafeCell;
use std::sync::MutexGuard;

use crate::alloc::counts::{HEAP, HeapDelta};
use crate::alloc::thread as alloc_thread;
use crate::contention;
use crate::gc;
#[cfg(feature = "interpose")]
use crate::hook;
use crate::label;
use crate::ledger::Reader;
use crate::os::{self, loader};
use crate::profile::{self, Earlier};
use crate::stack::{self, RetiredList, TABLE};
use crate::stats::cpu_stats::{self, Meter};
use crate::{memory_limit, own, own_thread, postmortem, task, thread};

#[cfg(feature = "interpose")]
type HookGuard = MutexGuard<'static, hook::Progress>;
#[cfg(not(feature = "interpose"))]
type HookGuard = ();

type Guards = (
    MutexGuard<'static, memory_limit::State>,
    MutexGuard<'static, Option<task::Watcher>>,
    MutexGuard<'static, ()>,
    MutexGuard<'static, ()>,
    HookGuard,
    MutexGuard<'static, Vec<RetiredList>>,
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

// SAFETY: used between `before` and `after_*` only, by the thread that holds the locks.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Has the C library call the functions below around each fork. Once.
pub(crate) fn register() {
    // SAFETY: functions of the right type that live as long as the program.
    unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
}

extern "C" fn before() {
    let guards = (
        memory_limit::lock(),
        // Before the others, because it is held where they are taken.
        task::lock_watcher(),
        task::lock_cut(),
        contention::lock_rates(),
        #[cfg(feature = "interpose")]
        hook::lock(),
        #[cfg(not(feature = "interpose"))]
        (),
        stack::lock_lists(),
        TABLE.lock_readers(),
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
    // SAFETY: the locks are held.
    unsafe { *HELD.0.get() = Some(guards) };
    own::lock();
    thread::before_fork();
}

extern "C" fn after_in_parent() {
    own::unlock();
    postmortem::after_fork_in_parent();
    // SAFETY: the locks are held, by this thread.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn after_in_child() {
    // SAFETY: the locks are held, by the one thread there is.
    if let Some((.., readers, _, _, _, _, _)) = unsafe { &mut *HELD.0.get() } {
        postmortem::after_fork_in_child(readers);
    }
    os::forget_thread_id();
    #[cfg(feature = "http")]
    os::closed_in_forks::after_fork_in_child();
    HEAP.after_fork_in_child(alloc_thread::writer());
    TABLE.after_fork_in_child();
    stack::forget_vanished_threads();
    contention::after_fork_in_child();
    task::after_fork_in_child();
    own_thread::after_fork_in_child();
    thread::after_fork_in_child();
    own::unlock();
    // SAFETY: the locks are held, by the one thread there is.
    let mut held = unsafe { (*HELD.0.get()).take() };
    if let Some((limit, .., collectors, _, _, _, _)) = &mut held {
        limit.after_fork_in_child();
        collectors.after_fork_in_child();
    }
    drop(held);
    #[cfg(feature = "preload")]
    crate::preload::after_fork_in_child();
}
