//! Functions by which a library that is preloaded into programs activates Plimsoll there, such as `plimsoll-preload`. Not
//! for programs. The interface may change with every version.

#[cfg(feature = "http")]
pub use crate::config::{serve_in_child, wants_pages};
pub use crate::config::{start_cpu_samples, wants_thread};
pub use crate::postmortem::prepare as prepare_postmortem;
