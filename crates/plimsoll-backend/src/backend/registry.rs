//! The backend of the process, which the first allocation determines.

use std::cell::UnsafeCell;

use plimsoll_sys::primitives::{AtomicU32, Ordering};

use super::{Backend, Pages};

const NONE: u32 = 0;
const NOTICING: u32 = 1;
const NOTICED: u32 = 2;

/// Written once, by the thread that changes the state from [`NONE`] to [`NOTICING`], and read by
/// any thread after [`NOTICED`].
struct Noticed {
    state: AtomicU32,
    backend: UnsafeCell<Option<&'static dyn Backend>>,
}

// SAFETY: one thread writes the backend, before the release of `NOTICED`; it is only read after
// that. Backends are `Sync`.
unsafe impl Sync for Noticed {}

static NOTICED_BACKEND: Noticed = Noticed {
    state: AtomicU32::new(NONE),
    backend: UnsafeCell::new(None),
};

/// Registers a backend with the process, on a thread that is not yet [enlisted](Backend::enlist)
/// with it. Returns whether it is now the process's backend and the thread is enlisted. Called from hooks.
pub fn notice(backend: &'static dyn Backend) -> bool {
    let first = NOTICED_BACKEND
        .state
        .compare_exchange(NONE, NOTICING, Ordering::Acquire, Ordering::Relaxed)
        .is_ok();
    if first {
        // SAFETY: only the thread that changed the state from `NONE` reaches this.
        unsafe { *NOTICED_BACKEND.backend.get() = Some(backend) };
        NOTICED_BACKEND.state.store(NOTICED, Ordering::Release);
    }
    match self::backend() {
        Some(noticed) if noticed.name() == backend.name() => {
            noticed.enlist();
            true
        }
        _ => false,
    }
}

/// Returns the backend of the process: the backend of the `Alloc` that made the
/// first allocation; `None` if that has no backend. Other `Alloc`s with other backends are not
/// read: their blocks are counted, but their pages are not.
/// `heap_slack` shows the resulting contradiction.
pub fn backend() -> Option<&'static dyn Backend> {
    if NOTICED_BACKEND.state.load(Ordering::Acquire) != NOTICED {
        return None;
    }
    // SAFETY: no thread writes after `NOTICED`.
    unsafe { *NOTICED_BACKEND.backend.get() }
}

/// Returns the page figures of the process's backend.
pub fn pages() -> Pages {
    backend().map_or(Pages::ABSENT, Backend::pages)
}
