//! System calls and assembly of the tests, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `direct` | a system call without the C library |
//! | `hook` | a hook that calls `note`, then the hook `before` or the system |
//! | `vfork` | calls `syscall`; continues in `child` if it returns 0 |
//! | `child` | exits |
//! | `PUSHED` | the bytes that a call instruction pushes |
//! | `RETURN_ADDRESS` | the position of the return address on the stack of a thread in `syscall` |
//! | `VFORK` | the number of the system call `vfork`, if the processor has one |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
