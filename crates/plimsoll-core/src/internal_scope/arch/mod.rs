//! The address of thread-local storage of a preloaded library, one file per processor.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::thread_storage;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::thread_storage;
