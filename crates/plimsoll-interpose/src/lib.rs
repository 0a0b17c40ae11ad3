//! Interposes the C library's `syscall` function in the program into which this crate is linked.
//!
//! The standard library, parking_lot, libstdc++ and others make their futex calls through that
//! symbol. At link time, a definition in the program takes precedence over the C library's. So
//! every such call passes through this crate, without preloading, registration or rebuilding.
//!
//! Until [`set_mode`] enables interception, the code here does what the C library's does: it moves
//! the arguments, makes the system call, and sets `errno`. Calls other than `futex` are intercepted
//! only if they are watched: see [`watch`]. Except to set `errno`, the others use no stack and call
//! no function, so even a `clone` or `vfork` through `syscall` works as before. Intercepted futex calls go to the [`Hook`] with the
//! registers of the caller, from which its stack can be unwound without a frame of this crate. On
//! aarch64, a futex call that is not intercepted saves the return address on the stack, where a
//! profiler finds it while the thread waits.
//!
//! The crate interposes `prctl` in the same way, `pthread_create`, which creates threads: see the module `threads`, and
//! `vfork`.
//!
//! # Supported systems
//! Linux with glibc or musl, on x86-64 and aarch64. Elsewhere, [`IN_FORCE`] is false and nothing is
//! defined. In a program, calls from its shared libraries are interposed as well, including libraries that are
//! loaded later. In a shared library (`cdylib`), only calls of that library are interposed, since
//! rustc makes the function local to it. Calls by an inline `syscall` instruction are not
//! interposed, and neither are glibc's own.
//!
//! With the feature `export`, a shared library exports the function. If preloaded (`LD_PRELOAD`),
//! it then applies to the whole process, in an unmodified program. If loaded later, it does not
//! even receive its own calls, because the C library's definition comes first. Linking with
//! `-Wl,-Bsymbolic-functions` changes this. [`is_linked`] returns which case applies.
//!
//! With the feature `pthread`, the functions for mutexes, readers-writer locks and conditions are
//! interposed: see the module `pthread`. With the feature `mmap`, so are the functions by which a
//! program maps memory directly: see the module `mappings`. Both need glibc, linked dynamically.

#![no_std]

#[cfg(interposes_syscall)]
mod arch;
#[cfg(interposes_syscall)]
mod define;
mod in_force;
#[cfg(feature = "mmap")]
pub mod mappings;
#[cfg(feature = "pthread")]
pub mod pthread;
mod syscall;
pub mod threads;
pub mod vfork;

pub use syscall::{
    Call, Hook, IN_FORCE, Mode, NUMBERS, hook, is_linked, set_hook, set_mode, set_watcher, watch,
};
