//! Shows the memory, threads and stacks of any running process, for `plimsoll attach`. Linux only.
//!
//! No memory of the process is changed. A blocked thread is not stopped, and none of its system calls is interrupted: the kernel
//! reports its position, and copies its stack. A running thread is stopped while its registers and its stack are copied.
//!
//! All items of this crate may change in any version: the crates of Plimsoll require each other in exactly one version.

#![cfg(target_os = "linux")]
#![allow(
    rustdoc::private_intra_doc_links,
    reason = "the pages of this crate are for its maintainers, who read them with private items"
)]

mod arch;
pub mod attach;
mod calls;
mod elf;
mod foreign_stack;
mod images;
mod json;
mod maps;
mod memory;
mod names;
mod owners;
mod process;
mod profile;
mod python;
mod refusal;
mod runtimes;
mod sampling;
mod sockets;
mod stacks;
mod stop;
pub mod tasks;
mod tasks_json;
mod tasks_text;
mod text;
mod threads;
mod view;
mod waits;

pub use refusal::readable_processes;
