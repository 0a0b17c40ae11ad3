//! The commands `plimsoll` and `cargo plimsoll`. `run` is in `plimsoll-launch`, `top` in `plimsoll-top`, `report` and what
//! subcommands share in `plimsoll-command`; each other subcommand is a module here.

mod attach;
mod cargo;
mod diff;
mod doctor;
pub mod library;
mod ship;
mod summary;
mod symbolize;
mod view;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use plimsoll_args::args::{Arguments, Command};
use plimsoll_command::failure::Failure;
use plimsoll_command::{file_size, report};
use plimsoll_launch::run;
use plimsoll_top::top;

/// Runs the subcommand. Reports a failure on standard error in one line, with its subject and
/// cause.
pub fn run(arguments: Arguments) -> ExitCode {
    file_size::fail_at_limit();
    let done = match arguments.command {
        Command::Run(arguments) => run::run(&arguments, &library::LIBRARY),
        Command::Report(arguments) if arguments.summary => summary::report(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Diff(arguments) => diff::diff(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Ship(arguments) => ship::ship(&arguments),
        Command::Symbolize(arguments) => symbolize::symbolize(&arguments),
        Command::Top(arguments) => top::watch(&arguments),
        Command::Attach(arguments) => attach::attach(&arguments),
        Command::Tasks(arguments) => attach::tasks(&arguments),
        Command::View(arguments) => view::view(&arguments),
    };
    exit_code(done, "plimsoll")
}

/// Runs `cargo plimsoll`, with the arguments of the process. Reports a failure in the same form.
pub fn run_cargo(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    file_size::fail_at_limit();
    let (done, name) = cargo::run(arguments.into_iter().collect());
    exit_code(done, name)
}

fn exit_code(done: Result<ExitCode, Failure>, name: &str) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(failure) => {
            // If standard error is closed, the failure cannot be reported.
            let _ = writeln!(std::io::stderr(), "{name}: {failure}");
            failure.exit_code()
        }
    }
}
