//! Interposes the C library's functions for mutexes, readers-writer locks and conditions, in the
//! way of this crate's `syscall`. It covers the locks of C and C++ code, whose waits occur inside
//! the C library.
//!
//! Until [`set_mode`] enables reports, a call takes one additional jump, through a word that holds
//! the address of the C library's function. While calls are reported:
//!
//! * A call to lock first tries the lock by the C library's `trylock`, and returns its result
//!   unless the lock is taken. Only then is a wait reported, and the called function waits for the
//!   lock.
//! * A call to unlock or to signal is reported before and after, unless the hooks know of no waiter
//!   at that address.
//!
//! All results are the C library's, and so is the order of its effects. Recursive, error-checking,
//! robust, priority-inheriting and process-shared locks keep their behaviour. A lock is tried first
//! only where that is valid: invalid times and clocks, which the C library rejects sooner or later,
//! are left to it.
//!
//! No Rust frame is on the stack while a thread waits. If a thread is cancelled in a wait, a
//! personality routine reports its end, whatever the program does on panics.
//!
//! # Supported systems
//! As for the crate, except in programs that link the C library statically (`crt-static`). Such a
//! program has only one function of each name, so calls could not be passed on. There, nothing is
//! defined, and [`IN_FORCE`] is false.
//!
//! The C11 functions (`mtx_lock` and so on), semaphores, barriers and spin locks are not
//! interposed.

#[cfg(interposes_functions)]
mod interposed;
#[cfg(interposes_functions)]
mod real;

use crate::in_force::in_force;
use core::mem::MaybeUninit;

/// Whether functions are interposed on this system, in programs that are linked like this one.
pub const IN_FORCE: bool = cfg!(interposes_functions);

/// The called function. Its first argument is the lock or the condition.
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

/// The number of words of a [`Call`] that belong to the hooks.
pub const ROOM: usize = 12;

/// A reported call. It lies on the stack of the calling thread, in the frame of the interposed
/// function, and stays valid until the call is over.
#[repr(C)]
#[derive(Debug)]
pub struct Call {
    /// Space in which [`Hooks::begin`] passes data to [`Hooks::end`]. The first word is 0 before
    /// `begin`; the others are uninitialized.
    pub room: [MaybeUninit<u64>; ROOM],
    /// The arguments as the caller passed them; those that the function does not have are garbage.
    pub arguments: [usize; 4],
    /// The called function.
    pub function: Function,
    /// The address after a call instruction in the interposed function. With this structure's
    /// address as the stack pointer, the stack can be unwound from here.
    pub instruction: usize,
    /// The frame pointer register at `instruction`.
    pub frame_pointer: usize,
    /// The C library's result; valid in [`Hooks::end`].
    pub result: i32,
}

/// The functions to which calls are reported. None of them may unwind, change `errno`, or wait.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Returns whether to report that the lock at this address is released, or that the condition
    /// is signalled.
    pub is_waited_for: extern "C" fn(address: usize) -> bool,
    /// Called before the C library's function: a wait begins, or a lock is released.
    pub begin: unsafe extern "C" fn(&mut Call),
    /// Called after the C library's function. A released lock, or a condition, may be gone by then.
    pub end: unsafe extern "C" fn(&mut Call),
    /// Called instead of `end` if the thread is cancelled in the function.
    pub abandoned: unsafe extern "C" fn(&mut Call),
}

/// The calls that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// None.
    Off,
    /// Nearly all waits for locks. A lock that looks free is passed to the C library untried, at
    /// almost no cost. If another thread takes it first, the wait is not reported.
    LockWaits,
    /// Waits for locks, releases of locks, and calls for conditions.
    All,
}

/// Sets the hooks. Call this once, before the mode is set to anything but [`Mode::Off`].
pub fn set_hooks(hooks: Hooks) {
    in_force!(interposed::set_hooks(hooks), {
        let _ = hooks;
    })
}

/// Sets which calls are reported from now on. Calls in progress are not affected. Only one thread
/// at a time may call this.
pub fn set_mode(mode: Mode) {
    in_force!(interposed::set_mode(mode), {
        let _ = mode;
    })
}

/// Returns whether calls of the code into which this crate is compiled are interposed, for all of
/// the functions. See [`crate::is_linked`].
pub fn is_linked() -> bool {
    in_force!(interposed::is_linked(), false)
}
