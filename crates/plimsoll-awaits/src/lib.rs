//! The tasks of tokio's runtimes in another process, and what each awaits.
//!
//! The layout of each structure comes from the debug information of the program at hand:
//!
//! 1. [`index`] reads it once, and finds tokio's variable of each thread, the functions that poll tasks, the tables of functions
//!    of trait objects, and the types that are futures.
//! 2. [`tokio`] follows the variable of each thread to its runtime, and lists the runtime's tasks. [`local`] finds sets of tasks
//!    that stay on one thread.
//! 3. [`awaits`] decodes the future of a task: an `async` function is an enum with a variant for each `.await`, which contains
//!    the awaited future.
//!
//! The process runs meanwhile. All memory is copied, each pointer is followed only if the memory can be read, and a task counts
//! only if all numbers that it was decoded from are the same when they are read again. What cannot be decoded is shown as its type.
//!
//! Programs use the command `plimsoll tasks`. All items of this crate may change in any version: the crates of Plimsoll
//! require each other in exactly one version.

#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

mod awaits;
mod copies;
mod header;
mod index;
mod local;
mod sections;
mod tokio;
mod types;
mod value;

pub use awaits::{Await, Detail, State};
pub use copies::Memory;
pub use header::Activity;
pub use index::Index;
pub use local::Thread;
pub use sections::{Missing, Sections, Tls};
pub use tokio::{Kind, Runtime, Runtimes, Task};
