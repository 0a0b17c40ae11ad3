//! Hooks that count.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use plimsoll_interpose::pthread::{self, Call, Function, Hooks, Mode};

static LOCKS: AtomicUsize = AtomicUsize::new(0);
static CONDITIONS: AtomicUsize = AtomicUsize::new(0);
static RELEASES: AtomicUsize = AtomicUsize::new(0);
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn is_waited_for(_: usize) -> bool {
    true
}

unsafe extern "C" fn begin(call: &mut Call) {
    let count = match call.function {
        Function::MutexLock => &LOCKS,
        Function::MutexUnlock => &RELEASES,
        Function::CondWait => &CONDITIONS,
        _ => return,
    };
    count.fetch_add(1, Relaxed);
}

unsafe extern "C" fn end(_: &mut Call) {}

unsafe extern "C" fn abandoned(_: &mut Call) {
    ABANDONED.fetch_add(1, Relaxed);
}

/// Starts counting.
pub fn begin_counting() {
    pthread::set_hooks(Hooks {
        is_waited_for,
        begin,
        end,
        abandoned,
    });
    pthread::set_mode(Mode::All);
}

pub fn report() -> String {
    format!(
        "linked={} in_force={} locks={} conditions={} releases={} abandoned={}",
        pthread::is_linked(),
        pthread::IN_FORCE,
        LOCKS.load(Relaxed),
        CONDITIONS.load(Relaxed),
        RELEASES.load(Relaxed),
        ABANDONED.load(Relaxed),
    )
}
