//! What can be said on the command line. Knows nothing else of the command, because the build
//! makes the completions for shells and the manual pages of it.

mod doctor;
mod report;
mod run;
mod top;

use clap::{Parser, Subcommand};

pub use doctor::DoctorArguments;
pub use report::{DiffArguments, ReportArguments, ViewArguments};
pub use run::RunArguments;
pub use top::TopArguments;

/// What stands at the end of the help and of the manual page.
const MORE: &str = "\
Exit status:
  0  done
  1  not done, or `doctor` found what does not work; the reason is on standard error, in one line
  2  the arguments make no sense
 125  `run` itself failed; else it exits with the program's status
 126  the program cannot be executed
 127  there is no such program

Environment:
  PLIMSOLL  settings of programs that have Plimsoll in them: word=value,word=value
  PATH      where a program is looked for whose name has no slash
  NO_COLOR  if it is set and not empty, there are no colours";

/// Memory, locks and threads of programs as they are: profiles them, and shows profiles
#[derive(Clone, Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true, after_long_help = MORE)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run a program, and say what it did with memory, locks and threads
    Run(RunArguments),
    /// Show a profile, from a file or from a running program
    Report(ReportArguments),
    /// Show what one profile has more, and less, than another
    Diff(DiffArguments),
    /// Watch a running program
    Top(TopArguments),
    /// Say what of Plimsoll will work here, and what to change for the rest
    Doctor(DoctorArguments),
}
