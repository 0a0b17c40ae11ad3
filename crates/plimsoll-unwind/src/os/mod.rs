//! Walks that need no unwind tables, one per group of systems, with the same functions.
//!
//! On Windows, `frame_pointers` is the system's own unwinder: programs keep no frame pointers
//! there.

#[cfg(not(all(windows, target_arch = "x86_64")))]
pub mod frame_pointers;
#[cfg(all(windows, target_arch = "x86_64"))]
pub mod windows;

#[cfg(all(windows, target_arch = "x86_64"))]
pub use windows as frame_pointers;
