//! Breakpoints and registers of each processor.
//!
//! | item | meaning |
//! |---|---|
//! | `NOP` | the instruction of a probe |
//! | `BREAKPOINT` | an instruction of the same length that stops the thread |
//! | `ARGUMENTS` | the places of the first three arguments, as notes describe them |
//! | `stopped_at` | the address of the breakpoint at which a thread stopped, and the first three arguments; continues behind it |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;
