//! Hook of futex calls: the waits and wake-ups that reach the system.

use plimsoll_interpose::Call;

use plimsoll_sys::os::syscall;

use super::{calibrate, parking_lot, sites};
use plimsoll_core::stack::{Registers, Start};
use plimsoll_tasks::recording;
use plimsoll_waits::contention::meter::{self, Timed};
use plimsoll_waits::contention::{self, Ended, Wait, WaitKind, internal};

/// Makes the intercepted call, and records it if it waits or wakes. The hook.
pub(super) unsafe extern "C" fn called(call: &Call) -> isize {
    // `futex(word, operation, value, timeout, ...)`; the operation is an `int`.
    const FLAGS: i32 = libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME;
    if contention::is_suspended() {
        calibrate::saw(call);
        return forward(call);
    }
    let records = recording::is_on();
    match call.arguments[1] as i32 & !FLAGS {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET if records && internal::is_here() => {
            own_wait(call)
        }
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET if records => wait(call),
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET if records => wake(call),
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET if !internal::is_here() => metered_wait(call),
        _ => forward(call),
    }
}

fn wait(call: &Call) -> isize {
    let stack = caller(call);
    let word = call.arguments[0];
    let site = site_of(call, stack);
    let key = match site.family {
        sites::Family::ParkingLot => parking_lot::lock_of(word, &site).unwrap_or(word),
        // Writers wait on the second word of the lock.
        sites::Family::Std if site.kind == WaitKind::RwLockWrite => word.wrapping_sub(4),
        _ => word,
    };
    let wait = Wait::begin(site.kind, key, waker_looks_for(site.family, word, key));
    let result = forward(call);
    let ended = match -result as i32 {
        0 => Ended::Woken,
        libc::ETIMEDOUT => Ended::TimedOut,
        libc::EINTR => Ended::Interrupted,
        _ => Ended::Refused,
    };
    wait.end(ended, stack);
    result
}

/// Makes a wait of Plimsoll's own code, which stays out of the table of waiters.
fn own_wait(call: &Call) -> isize {
    let stack = caller(call);
    let wait = internal::Wait::begin(sites::site(stack).kind);
    let result = forward(call);
    // If the word had already changed, the thread did not wait.
    if -result as i32 != libc::EAGAIN {
        wait.end(stack);
    }
    result
}

fn site_of(call: &Call, stack: Start) -> sites::Site {
    /// The operation of parking_lot's waits: all others wait for a bit set, or for another value.
    const OPERATION: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let site = sites::site(stack);
    if site.kind == WaitKind::Other
        && calibrate::is_done()
        && (call.arguments[1] as i32, call.arguments[2] as u32) == (OPERATION, 1)
    {
        return parking_lot::recognise(call.arguments[0]).unwrap_or(site);
    }
    site
}

/// Makes a wait while nothing is recorded; times it if it is for a lock and its turn has come.
fn metered_wait(call: &Call) -> isize {
    let timed = begin_timed(call);
    // One call for all waits, timed or not, so that waits at the same place have the same stack.
    let result = forward(call);
    if let Some((timed, is_for_lock)) = timed {
        // The sites may be known by now. A wait that ends before that is left out.
        if is_for_lock || super::want_sites() && waits_for_lock(call) {
            timed.end();
        }
    }
    result
}

/// Starts the timer of a wait if its turn has come and it may be for a lock. Also returns whether
/// it is known to be for one.
fn begin_timed(call: &Call) -> Option<(Timed, bool)> {
    // In this order: finding the purpose of the wait takes longer.
    if !meter::is_turn() {
        return None;
    }
    let is_known = super::want_sites();
    if is_known && !waits_for_lock(call) {
        return None;
    }
    Some((Timed::begin(), is_known))
}

fn waits_for_lock(call: &Call) -> bool {
    site_of(call, caller(call)).kind.is_lock()
}

/// Returns the word by which a waker finds this waiter: a waker of the standard library's writers
/// uses the first word.
fn waker_looks_for(family: sites::Family, word: usize, key: usize) -> usize {
    match family {
        sites::Family::ParkingLot => word,
        _ => key,
    }
}

fn wake(call: &Call) -> isize {
    let word = call.arguments[0];
    // Before a thread is woken, which might wait for something else, or free the lock.
    let release = contention::release(word, word.wrapping_sub(4));
    let result = forward(call);
    if let Some(release) = release {
        release.record(caller(call));
    }
    result
}

fn forward(call: &Call) -> isize {
    // SAFETY: the number and arguments are those of the program's own call, unmodified.
    unsafe { syscall::forward(call.number as _, call.arguments) }
}

/// Returns the registers of the caller at its return address.
fn caller(call: &Call) -> Start {
    Start::Caller(Registers {
        instruction: call.return_address as u64,
        stack: call.stack_pointer as u64,
        frame: call.frame_pointer as u64,
        link: 0,
    })
}
