//! The command `plimsoll`: one module for each of its subcommands, and what they share.

pub mod args;
mod doctor;
mod failure;
mod flame;
pub mod http;
mod plain_text;
pub mod profile;
pub mod program;
mod progress;
pub mod report;
mod run;
mod top;

use std::io::Write;
use std::process::ExitCode;

pub use failure::Failure;

use args::{Arguments, Command};

/// Does what the arguments say. Failures are one line on stderr, with what failed and why.
pub fn carry_out(arguments: Arguments) -> ExitCode {
    let done = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Diff(arguments) => report::diff(&arguments),
        Command::Doctor(arguments) => doctor::carry_out(&arguments),
        Command::Top(arguments) => top::watch(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            // If nobody reads it, nobody is to be told.
            let _ = writeln!(std::io::stderr(), "plimsoll: {failure}");
            failure.exit_code()
        }
    }
}
