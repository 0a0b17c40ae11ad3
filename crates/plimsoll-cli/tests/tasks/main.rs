//! `plimsoll tasks` lists the tasks of a program that was not prepared, and what each awaits.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "../command/mod.rs"]
mod command;

mod awaits;
mod hostile;
mod program;
mod refusals;
mod tracked;
