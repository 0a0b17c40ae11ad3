//! Asking the dynamic loader what is loaded. Not for hooks: it takes the loader's lock.
//!
//! The C library leaves that lock as it is in the child of a fork: if another thread had it, the
//! child waits for ever. So Plimsoll's own threads ask one at a time, and not while somebody forks.
//! Against the program's threads, which may be loading a library at that moment, nothing is to be
//! done.

use std::ffi::{c_int, c_void};
use std::sync::MutexGuard;

use crate::primitives::Mutex;

static ASKING: Mutex<()> = Mutex::new(());

/// What the loader calls for each object, until it returns something else than 0.
pub(crate) type Callback =
    unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

/// Calls `callback` with each object and with `data`.
///
/// # Safety
/// `data` must be what `callback` takes it for.
pub(crate) unsafe fn each_object(callback: Callback, data: *mut c_void) {
    let _alone = lock();
    // SAFETY: the caller's.
    unsafe { libc::dl_iterate_phdr(Some(callback), data) };
}

/// Does something during which no code goes away that was loaded when it began, nor is any added.
pub(crate) fn while_nothing_is_unloaded(work: impl FnOnce()) {
    unsafe extern "C" fn first<W: FnOnce()>(
        _: *mut libc::dl_phdr_info,
        _: usize,
        work: *mut c_void,
    ) -> c_int {
        // SAFETY: the option below, which outlives the call.
        if let Some(work) = unsafe { (*work.cast::<Option<W>>()).take() } {
            work();
        }
        1
    }
    fn ask<W: FnOnce()>(work: W) {
        let mut work = Some(work);
        // SAFETY: the callback takes an option of that type.
        unsafe { each_object(first::<W>, (&raw mut work).cast()) };
    }
    ask(work);
}

/// Keeps Plimsoll's threads from asking until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, ()> {
    ASKING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
