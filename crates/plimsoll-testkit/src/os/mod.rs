//! Helpers for one system.

#[cfg(target_os = "linux")]
pub mod linux;
