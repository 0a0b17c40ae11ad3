//! Whether this crate's `syscall` is the one that is called, however a program is linked.
//!
//! Small packages are generated, built in each way and run. They contend for a lock in a way that
//! certainly waits, and say what their hook saw. The short form builds a few of the ways;
//! `PLIMSOLL_LINK_MATRIX=all` has all of them. What a machine does not have is skipped, and said.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

#[path = "link_matrix/commands.rs"]
mod commands;
#[path = "link_matrix/copies.rs"]
mod copies;
#[path = "link_matrix/form.rs"]
mod form;
#[path = "link_matrix/libraries.rs"]
mod libraries;
#[path = "link_matrix/linkers.rs"]
mod linkers;
#[path = "link_matrix/package.rs"]
mod package;
#[path = "link_matrix/programs.rs"]
mod programs;
#[path = "link_matrix/pthread.rs"]
mod pthread;
#[path = "link_matrix/report.rs"]
mod report;
