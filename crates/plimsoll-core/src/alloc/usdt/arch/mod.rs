//! The functions of the probes, for each processor.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
#[path = "absent.rs"]
mod probe;
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
mod probe;

pub(super) use probe::{probe_alloc, probe_free};
