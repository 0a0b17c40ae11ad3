//! The command line. This module depends on no other module of the command, because the build
//! script includes it to generate shell completions and manual pages.

mod attach;
mod cargo;
mod doctor;
mod report;
mod run;
mod ship;
mod symbolize;
mod tasks;
mod top;
mod view;

use clap::{Parser, Subcommand};

pub use attach::AttachArguments;
pub use cargo::{
    BuildArguments, CargoArguments, CargoCommand, CargoFlameArguments, CargoRunArguments,
    CargoTestArguments, ProgramArguments, TargetArguments,
};
pub use doctor::DoctorArguments;
pub use report::{DiffArguments, ReportArguments, ViewArguments};
pub use run::RunArguments;
pub use ship::ShipArguments;
pub use symbolize::SymbolizeArguments;
pub use tasks::TasksArguments;
pub use top::TopArguments;
pub use view::BrowserArguments;

/// The end of the help and of the manual page.
const MORE: &str = "\
Exit status:
  0  success
  1  failure, with a one-line reason on standard error; or a failed check of `doctor`
  2  the arguments are invalid
  3  `diff`: a figure grew by more than --fail-over allows
 125  `run` itself failed; otherwise it exits with the program's status
 126  the program cannot be executed
 127  the program does not exist

Environment:
  PLIMSOLL        settings of programs that contain Plimsoll: word=value,word=value
  PLIMSOLL_TOKEN  the token of pages that require one (the setting http_token), or file:PATH
  PATH            searched for a program whose name has no slash
  NO_COLOR        if set and not empty, disables colours";

/// Profiles memory, locks and threads of unmodified programs, and shows profiles
#[derive(Clone, Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, after_long_help = MORE)]
pub struct Arguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a program, and report its memory, locks and threads
    Run(RunArguments),
    /// Show a profile from a file or a running program
    Report(ReportArguments),
    /// Show the difference of two profiles or runs, and fail if it exceeds a limit
    Diff(DiffArguments),
    /// Show profiles and post-mortem files in the browser
    View(BrowserArguments),
    /// Add names, files and lines to a profile of addresses
    Symbolize(SymbolizeArguments),
    /// Watch a running program
    Top(TopArguments),
    /// Show the memory, threads and stacks of any running process, without changing it
    Attach(AttachArguments),
    /// Show the tasks of tokio in any running process, and what each awaits
    Tasks(TasksArguments),
    /// Move post-mortem files and profiles to a directory or an HTTP server
    Ship(ShipArguments),
    /// Report what works on this machine or with a program, and how to enable the rest
    Doctor(DoctorArguments),
}
