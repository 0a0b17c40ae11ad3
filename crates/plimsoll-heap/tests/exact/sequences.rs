//! Random sequences of operations, with exact bytes.

use crate::model::{Random, operations, run};

pub fn agree() {
    run(&mut Random(1), operations(), Some(1000));
}

/// Signals interrupt the thread at any instruction, also within the operations on lists. Each operation has
/// happened once or not yet.
pub fn interrupt() {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: the handler does nothing; the timer's values are valid.
    unsafe {
        libc::signal(libc::SIGALRM, ignore as *const () as libc::sighandler_t);
        set_timer(50);
        run(&mut Random(3), operations() / 4, Some(1000));
        set_timer(0);
    }
}

/// Makes the system send `SIGALRM` at intervals of some microseconds, or never for 0.
///
/// # Safety
/// The process handles the signal.
unsafe fn set_timer(microseconds: libc::suseconds_t) {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: microseconds,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the pointer is valid for the call.
    let failed =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    assert_eq!(failed, 0);
}
