//! The command `plimsoll`: one module for each of its subcommands, and what they share.

pub mod args;
mod failure;
pub mod http;
pub mod profile;
mod progress;
mod top;

use std::process::ExitCode;

pub use failure::Failure;

use args::{Arguments, Command};

/// Does what the arguments say. Failures are one line on stderr, with what failed and why.
pub fn carry_out(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Report(_) | Command::Diff(_) => Err(Failure::new("report", "not there yet")),
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
