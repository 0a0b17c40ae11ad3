//! `plimsoll doctor`.

use std::process::ExitCode;

use crate::Failure;
use crate::args::DoctorArguments;

/// Says what works and what does not.
///
/// # Errors
/// There is nothing to say yet.
pub(crate) fn carry_out(_: &DoctorArguments) -> Result<ExitCode, Failure> {
    Err(Failure::new("doctor", "not there yet"))
}
