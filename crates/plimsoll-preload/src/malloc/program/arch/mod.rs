//! The hook of a function with arguments on the stack, one file per processor with the same item.
//!
//! | item | meaning |
//! |---|---|
//! | `pass_on` | defines a function that calls another one with its third and fourth argument, and then jumps to an address with all its arguments unchanged |
//!
//! `other` has no such function: on these processors nothing is redirected.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::pass_on;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::pass_on;
