//! The command `plimsoll`. The library of the same package implements it, so that tests can use
//! parts of it.

use std::process::ExitCode;

use clap::Parser;
use plimsoll_args::args::Arguments;

fn main() -> ExitCode {
    plimsoll_cli::run(Arguments::parse())
}
