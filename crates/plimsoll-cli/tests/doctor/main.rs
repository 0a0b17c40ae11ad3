//! `plimsoll doctor`: the command, and its findings on program files.

plimsoll_testkit::process_per_module!();

#[path = "../command/mod.rs"]
mod command;
mod command_line;
mod finding;
mod machines;
mod program_files;
mod programs;
