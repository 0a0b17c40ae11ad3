//! The command `plimsoll`. What it does is in the library of the same package, so that tests can
//! use parts of it.

use std::process::ExitCode;

use clap::Parser;
use plimsoll_cli::args::Arguments;

fn main() -> ExitCode {
    plimsoll_cli::carry_out(Arguments::parse())
}
