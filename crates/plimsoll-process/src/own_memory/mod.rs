//! Memory that the calling thread may read: its own stack, and pages that are readable. `linux` and `portable` have the same
//! items.

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod portable;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub use linux::*;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
pub use portable::*;
