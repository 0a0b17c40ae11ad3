//! The properties of each processor that reading another process depends on, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `MACHINE` | the number of the processor in ELF files; 0 if stacks are not read |
//! | `Raw` | the registers of a stopped thread, as the kernel copies them |
//! | `registers` | the registers that a walk needs |
//! | `is_in_call` | whether the thread is at the end of a system call |
//! | `restart` | lets the kernel restart a system call that the stop interrupted |
//! | `HAS_THREAD_POINTERS` | whether `thread_pointer` finds any |
//! | `thread_pointer` | the address to which thread-local variables are relative |
//! | `legacy_call` | the names of system calls that newer processors lack |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use other::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;
