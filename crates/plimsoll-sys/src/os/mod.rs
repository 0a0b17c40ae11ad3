//! The interface to the operating system, one file per subject.
//!
//! Unless its documentation states otherwise, every function here may be called inside an allocator
//! hook. Such a function does not allocate, take a lock, or change `errno`: on Linux, it makes
//! system calls directly.
//!
//! `linux` and `portable` have the same items; `unix` has those that all Unix systems share.
//! `portable` serves every other system: where a system lacks something, its functions return
//! nothing, zero or an error. `--cfg plimsoll_portable_os` selects it on Linux, for tests.

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod portable;
#[cfg(unix)]
mod unix;

pub mod fork;
pub mod own_threads;
pub mod region;
pub mod rseq;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub use linux::*;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
pub use portable::*;
#[cfg(unix)]
pub use unix::*;

pub use crate::arch::thread_pointer;

/// Returns a slot below `places`, a power of two, for the calling thread. Threads that run
/// concurrently mostly have different slots.
#[inline]
pub fn thread_place(places: usize) -> usize {
    let mixed = (thread_pointer() as u64 >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize & (places - 1)
}
