//! Waits of threads and tasks, in a program without `Alloc`.
//!
//! Each module runs in a separate process.

plimsoll_testkit::process_per_module!();

mod contention;
mod measure_nothing;
#[cfg(feature = "pthread")]
mod pthread;
mod sync;
#[cfg(feature = "tokio")]
mod tokio_sync;
