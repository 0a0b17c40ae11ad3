//! One file per system with the same items.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::{attach, tasks};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{attach, tasks};
