//! The command `plimsoll`: one module for each of its subcommands, and what they share.

pub mod args;
mod failure;
mod flame;
pub mod http;
pub mod profile;
mod progress;
pub mod report;
mod top;

use std::process::ExitCode;

pub use failure::Failure;

use args::{Arguments, Command};

/// Does what the arguments say. Failures are one line on stderr, with what failed and why.
pub fn carry_out(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Report(arguments) => report::report(&arguments),
        Command::Diff(arguments) => report::diff(&arguments),
        Command::Top(arguments) => top::watch(&arguments),
        Command::Doctor(_) => Err(Failure::new("doctor", "not there yet")),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("plimsoll: {failure}");
            failure.exit_code()
        }
    }
}
