//! `plimsoll doctor`.

use clap::Args;

/// The arguments of `plimsoll doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorArguments {
    /// A program's file, or the URL of the pages of a running one; without, this machine
    pub subject: Option<String>,
}
