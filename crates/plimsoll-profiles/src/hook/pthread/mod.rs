//! Hooks of locks and conditions of C and C++ code: waits and releases in the C library's own
//! functions.
//!
//! Those functions make their futex calls internally, so the futex hook does not see them. The
//! called function and its argument identify the primitive; the key is the address of the lock or
//! the condition.
//!
//! Stacks begin in the called function (`pthread_mutex_lock`), as those of other locks do. So the
//! profile shows the operation before its caller, and a profile by function does not charge the
//! caller with the time of the lock.

mod layout;

use plimsoll_interpose::pthread::{self, Call, Function, Hooks, Mode};

use plimsoll_core::stack::{Registers, Start};
use plimsoll_tasks::recording;
use plimsoll_waits::contention::meter::{self, Timed};
use plimsoll_waits::contention::{self, Ended, Release, Wait, WaitKind, internal};

/// Starts to report waits and releases. Once.
pub(super) fn start() {
    pthread::set_hooks(Hooks {
        is_waited_for,
        begin,
        end,
        abandoned,
    });
    follow_rates();
}

/// Makes the hooks report releases only while events are recorded. Otherwise releases are not
/// needed, and waits only for their total time.
pub(super) fn follow_rates() {
    pthread::set_mode(if recording::is_on() {
        Mode::All
    } else {
        Mode::LockWaits
    });
}

/// The pending state of a call between its begin and its end. It is kept in the call.
#[repr(C, u64)]
enum UnderWay {
    /// No state. The call has this value before it begins.
    Nothing = 0,
    Waits(Wait),
    IsTimed(Timed),
    Releases(Release),
    /// A wait of Plimsoll's own code.
    OwnWaits(internal::Wait),
}

const _: () = assert!(size_of::<UnderWay>() <= pthread::ROOM * size_of::<u64>());
const _: () = assert!(align_of::<UnderWay>() <= align_of::<u64>());

extern "C" fn is_waited_for(address: usize) -> bool {
    contention::is_waited_for(address)
}

unsafe extern "C" fn begin(call: &mut Call) {
    let under_way = if contention::is_suspended() {
        UnderWay::Nothing
    } else if recording::is_on() {
        begin_recorded(call)
    } else {
        begin_metered(call)
    };
    // SAFETY: `call.room` is large enough, as asserted above, and its previous value needs no drop.
    unsafe { call.room.as_mut_ptr().cast::<UnderWay>().write(under_way) };
}

fn begin_recorded(call: &Call) -> UnderWay {
    let [key, second, ..] = call.arguments;
    match kind(call.function) {
        Some(kind) if internal::is_here() => UnderWay::OwnWaits(internal::Wait::begin(kind)),
        Some(WaitKind::Condvar) => {
            // The mutex is still held, but this thread may not run again for a long time.
            if let Some(release) = release_of_mutex(second) {
                release.record(stack(call));
            }
            UnderWay::Waits(Wait::begin(WaitKind::Condvar, key, key))
        }
        Some(kind) => UnderWay::Waits(Wait::begin(kind, key, key)),
        None => {
            let release = match call.function {
                Function::MutexUnlock => release_of_mutex(key),
                // SAFETY: the caller of the C library's function passes a readers-writer lock.
                Function::RwLockUnlock if unsafe { layout::is_written(key) } => {
                    contention::release_key(key)
                }
                Function::RwLockUnlock => contention::release_by_reader(key),
                _ => {
                    // The condition's waiters are about to be woken; no thread is charged.
                    let _none = contention::release_key(key);
                    None
                }
            };
            release.map_or(UnderWay::Nothing, UnderWay::Releases)
        }
    }
}

fn begin_metered(call: &Call) -> UnderWay {
    if meter::is_turn()
        && kind(call.function).is_some_and(WaitKind::is_lock)
        && !internal::is_here()
    {
        UnderWay::IsTimed(Timed::begin())
    } else {
        UnderWay::Nothing
    }
}

/// Returns the release of the mutex at `address`, if the calling thread is about to release it and
/// threads wait for it.
fn release_of_mutex(address: usize) -> Option<Release> {
    // SAFETY: the caller of the C library's function passes a mutex, and that function reads the
    // same fields.
    let gives_up = unsafe { layout::gives_up_mutex(address) };
    gives_up.then(|| contention::release_key(address)).flatten()
}

unsafe extern "C" fn end(call: &mut Call) {
    let ended = ended(call);
    finish(call, ended);
}

unsafe extern "C" fn abandoned(call: &mut Call) {
    finish(call, Ended::Unseen);
}

fn finish(call: &mut Call, ended: Ended) {
    match take(call) {
        UnderWay::Nothing => {}
        UnderWay::IsTimed(timed) => timed.end(),
        // The lock may no longer exist.
        UnderWay::Releases(release) => release.record(stack(call)),
        UnderWay::OwnWaits(wait) if ended != Ended::Refused => wait.end(stack(call)),
        UnderWay::OwnWaits(_) => {}
        UnderWay::Waits(wait) => wait.end(ended, stack(call)),
    }
}

/// Takes the pending state out of the call, and leaves `Nothing`.
fn take(call: &mut Call) -> UnderWay {
    // SAFETY: `begin` has written the state; otherwise its tag is `Nothing`, which is 0.
    unsafe {
        call.room
            .as_mut_ptr()
            .cast::<UnderWay>()
            .replace(UnderWay::Nothing)
    }
}

/// Returns how the wait in a call ended; `Refused` if the call was not a wait.
fn ended(call: &Call) -> Ended {
    let [address, ..] = call.arguments;
    let is_shared = match kind(call.function) {
        None => return Ended::Refused,
        Some(WaitKind::Condvar) => {
            return match call.result {
                libc::ETIMEDOUT => Ended::TimedOut,
                // The thread has the mutex again, or would if the owner had not died.
                0 | libc::EOWNERDEAD | libc::ENOTRECOVERABLE => Ended::Woken,
                _ => Ended::Refused,
            };
        }
        Some(WaitKind::Mutex) => layout::is_mutex_shared as unsafe fn(usize) -> bool,
        _ => layout::is_rwlock_shared,
    };
    match call.result {
        libc::ETIMEDOUT => Ended::TimedOut,
        libc::EOWNERDEAD => Ended::Unseen,
        // SAFETY: the thread holds the lock, so the lock exists.
        0 if unsafe { is_shared(address) } => Ended::Unseen,
        // A call that was refused a lock did not wait, or waited until the owner released it.
        _ => Ended::Acquired,
    }
}

/// Returns what kind of wait a function makes; `None` for functions that release or wake.
fn kind(function: Function) -> Option<WaitKind> {
    match function {
        Function::MutexLock | Function::MutexTimedLock | Function::MutexClockLock => {
            Some(WaitKind::Mutex)
        }
        Function::RwLockRead | Function::RwLockTimedRead | Function::RwLockClockRead => {
            Some(WaitKind::RwLockRead)
        }
        Function::RwLockWrite | Function::RwLockTimedWrite | Function::RwLockClockWrite => {
            Some(WaitKind::RwLockWrite)
        }
        Function::CondWait | Function::CondTimedWait | Function::CondClockWait => {
            Some(WaitKind::Condvar)
        }
        _ => None,
    }
}

/// Returns the registers at the called function.
fn stack(call: &Call) -> Start {
    Start::Caller(Registers {
        instruction: call.instruction as u64,
        stack: std::ptr::from_ref(call) as u64,
        frame: call.frame_pointer as u64,
        link: 0,
    })
}
