//! `plimsoll view`.

use clap::{Args, ValueHint};

const EXAMPLES: &str = "\
Examples:
  plimsoll view heap.pb.gz                            a flame graph, and functions with callers
  plimsoll view before.pb.gz after.pb.gz              each, and their difference
  plimsoll view app.postmortem                        also the time before the end
  plimsoll view /tmp/profiles                         all that `plimsoll run --out` wrote there";

/// The arguments of `plimsoll view`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BrowserArguments {
    /// Profiles and post-mortem files, or directories with such files
    #[arg(value_name = "FILE|DIRECTORY", required = true, value_hint = ValueHint::AnyPath)]
    pub files: Vec<String>,
    /// The port on 127.0.0.1; 0 for any free one
    #[arg(short, long, default_value_t = 0)]
    pub port: u16,
    /// Print the address only: do not open a browser
    #[arg(long)]
    pub no_open: bool,
}
