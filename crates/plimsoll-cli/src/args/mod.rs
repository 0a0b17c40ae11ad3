//! What can be said on the command line. Knows nothing else of the command, because the build
//! makes the completions for shells and the manual pages of it.

mod doctor;
mod report;
mod top;

use clap::{Parser, Subcommand};

pub use doctor::DoctorArguments;
pub use report::{DiffArguments, ReportArguments, ViewArguments};
pub use top::TopArguments;

/// Memory, locks and threads of programs as they are: profiles them, and shows profiles
#[derive(Clone, Debug, Parser)]
#[command(name = "plimsoll", version, propagate_version = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show a profile, from a file or from a running program
    Report(ReportArguments),
    /// Show what one profile has more, and less, than another
    Diff(DiffArguments),
    /// Watch a running program
    Top(TopArguments),
    /// Say what of Plimsoll will work here, and what to change for the rest
    Doctor(DoctorArguments),
}
