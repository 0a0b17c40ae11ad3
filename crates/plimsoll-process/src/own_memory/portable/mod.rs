//! Every system but Linux.

pub mod probe;
pub mod thread_stack;
