//! Linux.

pub mod probe;
pub mod thread_stack;
