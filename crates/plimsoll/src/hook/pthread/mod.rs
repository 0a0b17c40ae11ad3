//! Locks and conditions of C and C++ code: what waits and what lets go on, when it is done by the C
//! library's own functions.
//!
//! Those functions make their futex calls themselves, so nothing of this is seen by the other hook.
//! They say what is waited for and where it is, so there is nothing to be found out; the key is the
//! address of the lock or the condition.
//!
//! Stacks begin in the function that was called (`pthread_mutex_lock`), as those of other locks
//! begin in theirs: the profile says what was done before it says where, and one that shows
//! functions by themselves does not blame a caller for what is the lock's.

mod layout;

use plimsoll_interpose::pthread::{self, Call, Function, Hooks, Mode};

use crate::contention::meter::{self, Timed};
use crate::contention::{self, Ended, Release, Wait, WaitKind, own};
use crate::stack::{Registers, Start};

/// Has waits and releases reported. Once.
pub(super) fn start() {
    pthread::set_hooks(Hooks {
        is_waited_for,
        begin,
        end,
        abandoned,
    });
    follow_rates();
}

/// Has releases reported while something is recorded. Otherwise they are of no interest, and waits
/// only for the sum of how long they were.
pub(super) fn follow_rates() {
    pthread::set_mode(if contention::is_on() {
        Mode::All
    } else {
        Mode::LockWaits
    });
}

/// What a call that began is to be ended with. It is kept in the call.
#[repr(C, u64)]
enum UnderWay {
    /// With nothing. What the call says before it has begun.
    Nothing = 0,
    Waits(Wait),
    IsTimed(Timed),
    Releases(Release),
    /// A wait of Plimsoll's own code.
    OwnWaits(own::Wait),
}

const _: () = assert!(size_of::<UnderWay>() <= pthread::ROOM * size_of::<u64>());
const _: () = assert!(align_of::<UnderWay>() <= align_of::<u64>());

extern "C" fn is_waited_for(address: usize) -> bool {
    contention::is_waited_for(address)
}

unsafe extern "C" fn begin(call: &mut Call) {
    let under_way = if contention::is_suspended() {
        UnderWay::Nothing
    } else if contention::is_on() {
        begin_recorded(call)
    } else {
        begin_metered(call)
    };
    // SAFETY: there is room, and what was there has nothing to be dropped.
    unsafe { call.room.as_mut_ptr().cast::<UnderWay>().write(under_way) };
}

fn begin_recorded(call: &Call) -> UnderWay {
    let [key, second, ..] = call.arguments;
    match kind(call.function) {
        Some(kind) if own::is_here() => UnderWay::OwnWaits(own::Wait::begin(kind)),
        Some(WaitKind::Condvar) => {
            // The mutex is still held, but it may be long until this thread runs again.
            if let Some(release) = release_of_mutex(second) {
                release.record(stack(call));
            }
            UnderWay::Waits(Wait::begin(WaitKind::Condvar, key, key))
        }
        Some(kind) => UnderWay::Waits(Wait::begin(kind, key, key)),
        None => {
            let release = match call.function {
                Function::MutexUnlock => release_of_mutex(key),
                // SAFETY: as for a mutex.
                Function::RwLockUnlock if unsafe { layout::is_written(key) } => {
                    contention::release_key(key)
                }
                Function::RwLockUnlock => contention::release_by_reader(key),
                _ => {
                    // Who waits for the condition is about to be woken, and nobody is to blame.
                    let _none = contention::release_key(key);
                    None
                }
            };
            release.map_or(UnderWay::Nothing, UnderWay::Releases)
        }
    }
}

fn begin_metered(call: &Call) -> UnderWay {
    if meter::is_turn() && kind(call.function).is_some_and(WaitKind::is_lock) && !own::is_here() {
        UnderWay::IsTimed(Timed::begin())
    } else {
        UnderWay::Nothing
    }
}

/// What the calling thread is to blame for, which is about to give up the mutex at `address`, if it
/// is.
fn release_of_mutex(address: usize) -> Option<Release> {
    // SAFETY: the caller of the C library's function says that it is a mutex, and that function
    // reads no less of it.
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
        // The lock may be gone.
        UnderWay::Releases(release) => release.record(stack(call)),
        UnderWay::OwnWaits(wait) if ended != Ended::Refused => wait.end(stack(call)),
        UnderWay::OwnWaits(_) => {}
        UnderWay::Waits(wait) => wait.end(ended, stack(call)),
    }
}

/// What the call began with, once.
fn take(call: &mut Call) -> UnderWay {
    // SAFETY: `begin` has written it, or else the tag is that of `Nothing`.
    unsafe {
        call.room
            .as_mut_ptr()
            .cast::<UnderWay>()
            .replace(UnderWay::Nothing)
    }
}

/// How the wait ended that the call was, if it was one.
fn ended(call: &Call) -> Ended {
    let [address, ..] = call.arguments;
    let is_shared = match kind(call.function) {
        None => return Ended::Refused,
        Some(WaitKind::Condvar) => {
            return match call.result {
                libc::ETIMEDOUT => Ended::TimedOut,
                // It has the mutex again, or would if whoever had it had not died.
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
        // SAFETY: the thread has the lock, so it is there.
        0 if unsafe { is_shared(address) } => Ended::Unseen,
        // What was refused was not waited for, or until somebody gave it up.
        _ => Ended::Acquired,
    }
}

/// What a function waits for; `None` if it lets others go on.
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

/// Where the function that was called stands.
fn stack(call: &Call) -> Start {
    Start::Caller(Registers {
        instruction: call.instruction as u64,
        stack: std::ptr::from_ref(call) as u64,
        frame: call.frame_pointer as u64,
    })
}
