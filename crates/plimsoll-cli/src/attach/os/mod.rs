//! One file per system with the same item.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::attach;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::attach;
