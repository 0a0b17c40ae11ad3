//! The system's figures of the process, one file per kind of system with the same items.

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod other;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub(super) use linux::*;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
pub(super) use other::*;
