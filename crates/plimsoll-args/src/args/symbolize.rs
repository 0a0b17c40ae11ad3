//! `plimsoll symbolize`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

const EXAMPLES: &str = "\
Examples:
  plimsoll symbolize heap.pb.gz -o named.pb.gz                         from the mapped files, debug files, debuginfod
  plimsoll symbolize heap.pb.gz -o named.pb.gz --debug-file app.debug  and from a file that was kept at the build

Environment:
  DEBUGINFOD_URLS        servers that are asked for debug information by build id, separated by blanks
  DEBUGINFOD_CACHE_PATH  the directory for fetched files; else debuginfod_client in XDG_CACHE_HOME or ~/.cache
  DEBUGINFOD_TIMEOUT     seconds for each file (90)";

/// The arguments of `plimsoll symbolize`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SymbolizeArguments {
    /// A profile or post-mortem file with addresses: a file, `-`, or the URL of a page
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::AnyPath)]
    pub profile: String,
    /// The file to which the profile with names is written
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// A file with the symbols and debug information of the program or of a library. Its build id must be in
    /// the profile. May be given several times
    #[arg(long = "debug-file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub debug_files: Vec<PathBuf>,
}
