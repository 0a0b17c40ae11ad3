//! The code of jumps and the instructions that can be moved, one file per processor with the same
//! items.
//!
//! | item | meaning |
//! |---|---|
//! | `JUMP` | the bytes that are replaced in a function |
//! | `THUNK` | the size of a thunk |
//! | `Moved` | the instructions at the start of a function, which its trampoline repeats |
//! | `displace` | finds these instructions and checks them |
//! | `jump`, `thunk`, `trampoline` | encode a jump, a thunk and a trampoline |
//! | `calls_one_of` | whether code has a direct call of one of some functions, or a jump there |
//!
//! `other` refuses every function.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::{JUMP, Moved, THUNK, calls_one_of, displace, jump, thunk, trampoline};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{JUMP, Moved, THUNK, calls_one_of, displace, jump, thunk, trampoline};
