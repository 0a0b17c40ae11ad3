//! The subcommand `cargo plimsoll`. The library of the same package implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    plimsoll_cli::run_cargo(std::env::args_os())
}
