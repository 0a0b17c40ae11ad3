//! Tests that a program calls this crate's `syscall`, however it is linked.
//!
//! Each test generates a small package, builds it in one way and runs it. The programs contend for
//! a lock so that one thread certainly waits, and print the counts of their hook. By default only a
//! few ways are built; `PLIMSOLL_LINK_MATRIX=all` builds all. A case whose tools the machine lacks
//! is skipped with a message.

#![cfg(interposes_functions)]

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
