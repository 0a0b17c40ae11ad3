//! Takes over the C library's functions for mutexes, readers-writer locks and conditions, as this
//! crate does `syscall`, for the locks of C and C++ code, whose waits the C library makes itself.
//!
//! Until [`set_mode`] says otherwise, a call is one jump more than without: through a word that
//! holds the address of the C library's function. While calls are reported,
//!
//! * a lock is tried first, by the C library's own `trylock`; what that returns is returned, unless
//!   it is that the lock is taken. Only then is a wait reported, and the lock waited for by the
//!   function that was called;
//! * a lock is given up, or a condition signalled, without anything being reported if the hooks
//!   know of nobody who waits at that address; otherwise that is reported before and after.
//!
//! Answers are the C library's in all cases, and so is the order of what it does: locks that are
//! recursive, that check for errors, that are robust, inherit priorities, or belong to several
//! processes, are what they are. What is tried first is what may be tried: times and clocks that
//! are none, which the C library refuses sooner or later, are left to it.
//!
//! No frame of Rust's is on the stack while a thread waits. A wait that is ended by cancelling the
//! thread is reported by a personality routine, whatever the program does on panics.
//!
//! # Where it is in force
//! Where the crate is, but not in a program that has the C library in it (`crt-static`): there is
//! no function to go on to then, as the program has only one of each name. There, nothing is
//! defined, and [`IN_FORCE`] is false.
//!
//! The C11 functions (`mtx_lock` and so on), semaphores, barriers and spin locks are not taken
//! over.

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]
mod real;
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]
mod x86_64;

use crate::in_force::in_force;
use core::mem::MaybeUninit;

/// Whether anything is taken over on this system, in programs that are linked like this one.
pub const IN_FORCE: bool = cfg!(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
));

/// Which function was called. The first argument is the lock or the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Function {
    MutexLock = 0,
    MutexTimedLock = 1,
    MutexClockLock = 2,
    MutexUnlock = 3,
    RwLockRead = 4,
    RwLockTimedRead = 5,
    RwLockClockRead = 6,
    RwLockWrite = 7,
    RwLockTimedWrite = 8,
    RwLockClockWrite = 9,
    RwLockUnlock = 10,
    /// The second argument of this and of the two after it is the mutex.
    CondWait = 11,
    CondTimedWait = 12,
    CondClockWait = 13,
    CondSignal = 14,
    CondBroadcast = 15,
}

/// How many words of a [`Call`] are the hooks'.
pub const ROOM: usize = 12;

/// A call that is reported. It is on the stack of the thread that made it, in the frame of the
/// function that was called, which is still there when the call is over.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// For what [`Hooks::begin`] has to say to [`Hooks::end`]. The first word is 0 before; the
    /// rest is not initialized.
    pub room: [MaybeUninit<u64>; ROOM],
    /// As the caller passed them; those that the function does not have are garbage.
    pub arguments: [usize; 4],
    /// Which function it is.
    pub function: Function,
    /// In the function that was called, an instruction after a call. From here, with the address
    /// of this structure as the stack pointer, the stack can be unwound.
    pub instruction: usize,
    /// The frame pointer register there.
    pub frame_pointer: usize,
    /// What the C library returned, once it has.
    pub result: i32,
}

/// What is called for calls that are reported. None of these may unwind, touch `errno`, or wait for
/// anything.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Whether it is to be reported that the lock, or the condition, at this address is given up
    /// or signalled.
    pub is_waited_for: extern "C" fn(address: usize) -> bool,
    /// The C library's function is about to be called: a wait begins, or a lock is given up.
    pub begin: unsafe extern "C" fn(&mut Call),
    /// It has returned. A lock that was given up, and a condition, may not exist any more.
    pub end: unsafe extern "C" fn(&mut Call),
    /// It does not return, because the thread is cancelled.
    pub abandoned: unsafe extern "C" fn(&mut Call),
}

/// Which calls are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Off,
    /// Of locks that are waited for, nearly all: a lock that looks free is not tried first. That
    /// takes next to no time, and what is missed is a wait for somebody who was faster.
    LockWaits,
    /// Of locks that are waited for, of locks that are given up, and of conditions.
    All,
}

/// Sets the hooks. To be done once, before the mode is set to anything but [`Mode::Off`].
pub fn set_hooks(hooks: Hooks) {
    in_force!(x86_64::set_hooks(hooks), {
        let _ = hooks;
    })
}

/// Sets which calls are reported, from now on. Calls that are under way are not affected. One at a
/// time.
pub fn set_mode(mode: Mode) {
    in_force!(x86_64::set_mode(mode), {
        let _ = mode;
    })
}

/// Whether calls of the code that this is compiled into come by here, to all of the functions: see
/// [`crate::is_linked`].
pub fn is_linked() -> bool {
    in_force!(x86_64::is_linked(), false)
}
