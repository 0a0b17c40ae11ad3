//! The entry points of the `exec` functions, of `sbrk` and of the loader, one file per processor with the same
//! items.
//!
//! | item | meaning |
//! |---|---|
//! | `Call` | the arguments of a call, as the caller passed them |
//! | `executes` | an entry point: calls `called` with `position` and the `Call`, then jumps to the result, or returns -1 if that is null |
//! | `with_caller` | an entry point: returns the result of `called`, which gets the argument, the return address, the stack pointer after the return, and the frame pointer |
//! | `relocation` | defines `keep`, and runs a function while the loader relocates this library |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{Call, executes, relocation, with_caller};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Call, executes, relocation, with_caller};
