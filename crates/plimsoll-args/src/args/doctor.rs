//! `plimsoll doctor`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

/// The end of the help and of the manual page.
const MORE: &str = "\
Exit status:
  0  all checks passed
  1  a check failed and is marked `bad`; or the process does not exist, or no server responds
  2  the arguments are invalid
 126  the program cannot be executed
 127  the program does not exist

Environment:
  PATH      searched for a program whose name has no slash
  NO_COLOR  if set and not empty, disables colours";

/// The arguments of `plimsoll doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct DoctorArguments {
    /// A program, a process id, or the URL of a running program's pages [default: this machine]
    ///
    /// A program is searched for as a shell does. Write a file whose name is a number, or looks
    /// like an address with a port, with its directory: `./1234`.
    #[arg(value_name = "PROGRAM|PID|URL", value_hint = ValueHint::CommandName)]
    pub subject: Option<OsString>,

    /// Print JSON: an object with `works` and `sections`, of `findings` with `level` (`ok`,
    /// `note`, `bad`), `subject`, `says` and `what_to_do`
    #[arg(long)]
    pub json: bool,
}
