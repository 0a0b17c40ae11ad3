//! Timers on the CPU time of threads, and the handler of their signal.

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
mod other;

#[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
pub use linux::*;
#[cfg(not(all(target_os = "linux", not(plimsoll_portable_os))))]
pub use other::*;
