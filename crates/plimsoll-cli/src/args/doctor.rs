//! `plimsoll doctor`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// What stands at the end of the help and of the manual page.
const MORE: &str = "\
Exit status:
  0  everything that is needed works
  1  something does not, which is marked `bad`; or there is no such process, or nobody answers
  2  the arguments make no sense
 126  the program cannot be executed
 127  there is no such program

Environment:
  PATH      where a program is looked for whose name has no slash
  NO_COLOR  if it is set and not empty, there are no colours";

/// The arguments of `plimsoll doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct DoctorArguments {
    /// A program, a process id, or the URL of a running program's pages; without, this machine
    ///
    /// A program is found as a shell does. A file whose name is a number, or looks like an address
    /// with a port, is written with its directory: `./1234`.
    #[arg(value_name = "PROGRAM|PID|URL", value_hint = ValueHint::CommandName)]
    pub subject: Option<OsString>,

    /// Print JSON: an object with `works` and `sections`, of `findings` with `level` (`ok`,
    /// `note`, `bad`), `subject`, `says` and `what_to_do`
    #[arg(long)]
    pub json: bool,
}
