//! The backend of the process: that of the first allocation.

use std::cell::UnsafeCell;

use super::{Backend, Pages};
use crate::primitives::{AtomicU32, Ordering};

const NONE: u32 = 0;
const NOTICING: u32 = 1;
const NOTICED: u32 = 2;

/// Written once, by whoever takes the state from [`NONE`] to [`NOTICING`], and read by anybody
/// after it is [`NOTICED`].
struct Noticed {
    state: AtomicU32,
    backend: UnsafeCell<Option<&'static dyn Backend>>,
}

// SAFETY: the backend is written by one thread, before the release of `NOTICED`, and only read
// after that; backends are `Sync`.
unsafe impl Sync for Noticed {}

static THE: Noticed = Noticed {
    state: AtomicU32::new(NONE),
    backend: UnsafeCell::new(None),
};

/// Tells the process of a backend, in a thread that has not been [enlisted](Backend::enlist) with
/// it. Returns whether it is the process's, and the thread now enlisted. Called from hooks.
pub(crate) fn notice(backend: &'static dyn Backend) -> bool {
    let first = THE
        .state
        .compare_exchange(NONE, NOTICING, Ordering::Acquire, Ordering::Relaxed)
        .is_ok();
    if first {
        // SAFETY: only the one who has taken the state away from `NONE` gets here.
        unsafe { *THE.backend.get() = Some(backend) };
        THE.state.store(NOTICED, Ordering::Release);
    }
    match self::backend() {
        Some(noticed) if noticed.name() == backend.name() => {
            noticed.enlist();
            true
        }
        _ => false,
    }
}

/// The backend of the process: that of the [`Alloc`](crate::Alloc) through which the first
/// allocation went, if it has one. If there are `Alloc`s with other backends, those are not
/// asked: their blocks are counted, their pages are not, and
/// [`heap_slack`](crate::MemStats::heap_slack) says by how much that does not fit.
pub fn backend() -> Option<&'static dyn Backend> {
    if THE.state.load(Ordering::Acquire) != NOTICED {
        return None;
    }
    // SAFETY: nobody writes after `NOTICED`.
    unsafe { *THE.backend.get() }
}

/// What the backend of the process tells.
pub(crate) fn pages() -> Pages {
    backend().map_or(Pages::ABSENT, Backend::pages)
}
