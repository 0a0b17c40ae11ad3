//! CPython 3.9 to 3.14, by the layout of its structures.
//!
//! From 3.13 on, CPython publishes the offsets of its fields in `_PyRuntime` for readers such as this
//! one. For older versions, which do not change any more, they are listed here. Builds without the
//! global lock, debug builds before 3.13 and 32-bit systems have other layouts and are not read.
//!
//! The calling thread changes its frames only outside of hooks, so they are consistent here, with or
//! without the lock. A signal may interrupt it in the middle of a change: each address is checked
//! before it is read, each function by its type, and a chain that does not end is cut.
//!
//! A blocked thread changes nothing, so its frames are consistent, and keep their functions and names
//! in memory. Another thread reads them by copies of the memory, and then checks that the thread did
//! not move. Only then are new names kept. In the same way, [`OtherProcess`] reads the threads of another process.

#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(plimsoll_portable_os)
))]

mod frames;
mod layout;
mod lines;
mod memory;
mod other_process;
mod runtime;
mod source;
mod states;
mod thread;

pub use memory::Copies;
pub use other_process::OtherProcess;
pub use runtime::is_python;
pub use source::Source;
