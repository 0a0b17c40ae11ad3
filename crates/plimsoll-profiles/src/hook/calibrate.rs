//! Finds the places where threads wait for the standard library's locks in a program without a
//! symbol table: it makes a thread wait.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use plimsoll_interpose::Call;

use plimsoll_sys::primitives::{AtomicBool, AtomicUsize, Ordering};

use super::sites;
use plimsoll_core::internal_thread;
use plimsoll_waits::contention::{self, WaitKind};

/// The range in which the contended futex word lies, and the return address of its waiter.
static FROM: AtomicUsize = AtomicUsize::new(0);
static TO: AtomicUsize = AtomicUsize::new(0);
static WAITED_AT: AtomicUsize = AtomicUsize::new(0);

/// Whether [`calibrate`] ran, because the program has no symbol names.
static DONE: AtomicBool = AtomicBool::new(false);

/// The maximum time until a thread waits; after that, the test is abandoned.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether [`calibrate`] was necessary.
pub(super) fn is_done() -> bool {
    DONE.load(Ordering::Relaxed)
}

/// Notes a futex call that is not recorded. For the hook.
pub(super) fn saw(call: &Call) {
    let word = call.arguments[0];
    // A waker calls only after a thread has waited.
    if FROM.load(Ordering::Relaxed) <= word && word < TO.load(Ordering::Relaxed) {
        WAITED_AT.store(call.return_address, Ordering::Release);
    }
}

/// Contends each of the primitives once, and adds the place of the wait. The hook must be set. None
/// of these waits is recorded.
pub(super) fn calibrate() {
    DONE.store(true, Ordering::Relaxed);
    let _unrecorded = contention::suspend();
    let mutex = Arc::new(Mutex::new(()));
    let held = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    let waits = mutex.clone();
    contend(&*mutex, WaitKind::Mutex, held, move || drop(waits.lock()));

    // A lock for each mode: the waiter of the first mode may wait for its lock once more.
    let rwlock = Arc::new(RwLock::new(()));
    let held = rwlock.write().unwrap_or_else(PoisonError::into_inner);
    let waits = rwlock.clone();
    contend(&*rwlock, WaitKind::RwLockRead, held, move || {
        drop(waits.read())
    });
    let rwlock = Arc::new(RwLock::new(()));
    let held = rwlock.write().unwrap_or_else(PoisonError::into_inner);
    let waits = rwlock.clone();
    contend(&*rwlock, WaitKind::RwLockWrite, held, move || {
        drop(waits.write())
    });

    for timeout in [None, Some(PATIENCE)] {
        let pair = Arc::new((Condvar::new(), Mutex::new(false)));
        let waits = pair.clone();
        let notifies = Notifies(&pair);
        contend(&pair.0, WaitKind::Condvar, notifies, move || {
            let (condvar, notified) = &*waits;
            let mut guard = notified.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                guard = match timeout {
                    None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
                    Some(timeout) => match condvar.wait_timeout(guard, timeout) {
                        Ok((guard, _)) => guard,
                        Err(poisoned) => poisoned.into_inner().0,
                    },
                };
            }
        });
    }
}

struct Notifies<'a>(&'a (Condvar, Mutex<bool>));

impl Drop for Notifies<'_> {
    fn drop(&mut self) {
        *self.0.1.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.0.notify_all();
    }
}

/// Makes a thread wait for `primitive` until `held` is dropped.
fn contend<T, G>(primitive: &T, kind: WaitKind, held: G, wait: impl FnOnce() + Send + 'static) {
    let Range { start, end } = {
        let start = std::ptr::from_ref(primitive) as usize;
        start..start + size_of::<T>()
    };
    WAITED_AT.store(0, Ordering::Relaxed);
    FROM.store(start, Ordering::Relaxed);
    TO.store(end, Ordering::Relaxed);
    let thread = internal_thread::spawn(c"plimsoll-locks", move || {
        let _unrecorded = contention::suspend();
        wait();
    });
    let started = Instant::now();
    let found = loop {
        match WAITED_AT.load(Ordering::Acquire) {
            0 if thread.is_ok() && started.elapsed() < PATIENCE => std::thread::yield_now(),
            found => break found,
        }
    };
    TO.store(0, Ordering::Relaxed);
    drop(held);
    if found != 0 {
        sites::add_return_address(found, kind);
    }
}
