//! `plimsoll report` and `plimsoll diff`.

use clap::Args;

/// The arguments of `plimsoll report`.
#[derive(Args, Clone, Debug)]
pub struct ReportArguments {
    /// A profile: a file, or the URL of a page that has one
    pub profile: String,
}

/// The arguments of `plimsoll diff`.
#[derive(Args, Clone, Debug)]
pub struct DiffArguments {
    /// The profile to compare with
    pub base: String,
    /// The profile
    pub profile: String,
}
