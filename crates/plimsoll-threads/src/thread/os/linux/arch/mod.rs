//! System calls that only some processors have, one file per processor with the same items.

#[cfg(not(target_arch = "x86_64"))]
mod other;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use other::legacy_call;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::legacy_call;
