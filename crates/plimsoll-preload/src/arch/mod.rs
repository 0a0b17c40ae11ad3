//! The entry points of the `exec` functions and of the loader, one file per processor with the same
//! items.
//!
//! | item | meaning |
//! |---|---|
//! | `Call` | the arguments of a call, as the caller passed them |
//! | `executes` | an entry point: calls `called` with `position` and the `Call`, then jumps to the result, or returns -1 if that is null |
//! | `relocation` | defines `keep`, and runs a function while the loader relocates this library |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{Call, executes, relocation};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Call, executes, relocation};
