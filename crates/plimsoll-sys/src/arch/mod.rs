//! Instructions that no library offers, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `thread_pointer` | the register in which the C library keeps its thread control block |
//! | `system_call` | a system call without the C library, so that `errno` stays as it was |
//! | `rseq_area_offset` | the distance from the thread pointer to the area for restartable sequences |
//! | `sequence_descriptor!` | describes a restartable sequence of assembly to the kernel |
//! | `ticks`, `ticks_per_second` | the processor's time stamp counter, and its frequency if it is known |
//! | `CLOCK_SOURCE` | the name by which the kernel trusts that counter; empty for none |
//! | `call_on_stack` | calls a function on another stack |
//! | `FILTER_ARCHITECTURE` | the number by which filters of system calls know the processor |
//! | `CONTROL_BLOCK` | where the C library's control block of a thread lies |
//! | `read_word` | a load that sanitizers do not check |
//! | `keep_branches_apart` | keeps the compiler from merging two branches |
//!
//! `other` uses the C library, and has no counter and no restartable sequences.

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
mod aarch64;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
mod other;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod x86_64;

#[cfg(all(target_os = "linux", target_arch = "aarch64", not(miri)))]
pub use aarch64::*;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
pub use other::*;
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
pub use x86_64::*;

/// The position of the C library's control block of a thread, relative to the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlBlock {
    /// It begins at the thread pointer, and its first word points to itself.
    AtPointer,
    /// It ends at the thread pointer, or near it.
    BelowPointer,
}

/// Keeps the compiler from merging the preceding branch with the following one. Adds no
/// instruction.
#[inline(always)]
pub fn keep_branches_apart() {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: the template is empty, so it accesses no memory and no register.
    unsafe {
        std::arch::asm!("", options(nomem, nostack, preserves_flags));
    }
}
