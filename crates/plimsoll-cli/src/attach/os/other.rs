//! All other systems.

use std::process::ExitCode;

use plimsoll_args::args::AttachArguments;
use plimsoll_command::failure::Failure;

/// Fails.
pub(crate) fn attach(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let cause = "plimsoll attach reads processes of Linux only";
    Err(Failure::new(format!("process {}", arguments.pid), cause))
}
