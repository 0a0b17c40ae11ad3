//! Takes over the C library's `syscall` function for the program that this crate is linked into.
//!
//! The standard library, parking_lot, libstdc++ and others make their futex calls through that
//! symbol. A definition in the program wins over the C library's, at link time, so every such call
//! comes by here; nothing has to be preloaded, registered or rebuilt.
//!
//! Until [`set_mode`] says otherwise, and for every call but `futex` always, what is executed here
//! is what the C library executes: the arguments are moved, the system call is made, `errno` is
//! set. No stack is used and no other function called, so that even a `clone` or `vfork` through
//! `syscall` is as before. Futex calls that are wanted go to the [`Hook`] with the registers of the
//! caller, from which its stack can be unwound without a frame of this crate in it.
//!
//! The same is done to `pthread_create`, by which threads are created: see the module `threads`.
//!
//! # Where it is in force
//! Linux with glibc on x86-64; elsewhere, [`IN_FORCE`] is false and nothing is defined. In a
//! program, calls from its shared libraries come by here as well, those that are loaded later
//! included. In a shared library (`cdylib`), calls of that library do, and no others: rustc makes
//! the function local to it. Calls that are made with an instruction of their own, and glibc's own,
//! do not.
//!
//! With the feature `export`, the function is seen from outside a shared library. Preloaded
//! (`LD_PRELOAD`), it is then the whole process's, in a program that knows nothing of it. Loaded
//! later, such a library does not even see its own calls, because the C library was there first,
//! unless it is linked with `-Wl,-Bsymbolic-functions`: [`is_linked`] tells.

//!
//! With the feature `pthread`, the same is done to the functions for mutexes, readers-writer locks
//! and conditions: see the module `pthread`. With the feature `mmap`, it is done to those by which
//! a program maps memory by itself: see the module `mappings`.

#![no_std]

#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
mod define;
mod in_force;
#[cfg(feature = "mmap")]
pub mod mappings;
#[cfg(feature = "pthread")]
pub mod pthread;
pub mod threads;
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
mod x86_64;

/// Whether this crate does anything on this system.
pub const IN_FORCE: bool = cfg!(all(
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64"
));

/// A futex call that was intercepted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The number of the system call. Callers may leave garbage in the upper half.
    pub number: usize,
    /// As the caller passed them: those that the operation does not have are garbage, and so may
    /// be the upper halves of those that are 32 bits wide.
    pub arguments: [usize; 6],
    /// The caller's frame pointer register.
    pub frame_pointer: usize,
    /// The caller's stack pointer once it is returned to.
    pub stack_pointer: usize,
    /// Where the caller goes on.
    pub return_address: usize,
}

/// What is called in place of the system call. It is to make the call itself, directly, and to
/// return what the kernel returned: `-4095..=-1` becomes `errno` and -1. It must not unwind, and
/// must leave `errno` alone.
pub type Hook = unsafe extern "C" fn(&Call) -> isize;

/// Which futex calls go to the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// None.
    Off = 0,
    /// All.
    All = 1,
}

/// Sets the hook. To be done before the mode is set to anything but [`Mode::Off`]; a later one
/// takes the place of the one before, which calls that are under way may still be in.
pub fn set_hook(hook: Hook) {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    x86_64::set_hook(hook);
    let _ = hook;
}

/// The hook that was set, if any: for one that is to be called by another.
pub fn hook() -> Option<Hook> {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    return x86_64::hook();
    #[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
    None
}

/// Sets which calls go to the hook, from now on. Calls that are under way are not affected.
pub fn set_mode(mode: Mode) {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    x86_64::set_mode(mode);
    let _ = mode;
}

/// Whether calls of the code that this is compiled into come by here. They do not if another
/// definition of `syscall` comes first: the C library's, or the program's, for a shared library
/// that exports its own and was not preloaded.
pub fn is_linked() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    return x86_64::is_linked();
    #[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
    false
}
