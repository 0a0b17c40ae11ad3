//! `plimsoll attach` shows the memory, threads and stacks of processes that were not prepared, and changes none of them.

#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../command/mod.rs"]
mod command;

mod kinds;
mod python;
mod refusals;
mod samples;
mod target;
mod threads;
mod unharmed;
