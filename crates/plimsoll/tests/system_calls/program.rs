//! The program that the test `system_calls` traces. It has no runtime of the standard library, whose start makes system
//! calls.
#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]
#![allow(missing_docs)]

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[path = "parts.rs"]
mod parts;

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn main() {}
