//! `plimsoll top`.

use clap::Args;

/// The arguments of `plimsoll top`.
#[derive(Args, Clone, Debug)]
pub struct TopArguments {
    /// The program: the URL of its pages, or its process id
    pub program: String,
}
