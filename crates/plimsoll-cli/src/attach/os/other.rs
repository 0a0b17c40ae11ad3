//! All other systems.

use std::process::ExitCode;

use plimsoll_args::args::{AttachArguments, TasksArguments};
use plimsoll_command::failure::Failure;

/// Fails.
pub(crate) fn attach(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    Err(failure(arguments.pid))
}

/// Fails.
pub(crate) fn tasks(arguments: &TasksArguments) -> Result<ExitCode, Failure> {
    Err(failure(arguments.pid))
}

fn failure(pid: i32) -> Failure {
    Failure::new(
        format!("process {pid}"),
        "only processes of Linux can be read",
    )
}
