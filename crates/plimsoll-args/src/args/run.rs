//! `plimsoll run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `plimsoll run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
The program's input, output, signals and exit status pass through unchanged. The exit status is 126 \
if the program cannot be executed, 127 if it does not exist, and 125 if Plimsoll itself fails.

Examples:
  plimsoll run -- ./program --its --arguments
  plimsoll run --out /tmp/profiles --heap-rate 64k -- python3 script.py
  plimsoll run --diff /tmp/profiles -- python3 script.py
  plimsoll run --cpu -- ./program
  plimsoll run --postmortem=/var/plimsoll -- ./server
  plimsoll run --http 6060 -- ./server     then: plimsoll top http://127.0.0.1:6060")]
pub struct RunArguments {
    /// Serve /debug/pprof/ and /metrics while the program runs: host:port, or a port of 127.0.0.1.
    /// With --children, serve a list of the processes; each process serves on a separate port
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,

    /// Write the profiles and statistics to this directory when the program ends
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,

    /// Compare with an earlier run: a directory that --out wrote
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "quiet")]
    pub diff: Option<PathBuf>,

    /// Mean bytes between two samples of the heap profile: 1 for all allocations, 0 for none
    #[arg(long, value_name = "BYTES", default_value = "512k")]
    pub heap_rate: String,

    /// Waiting time between samples of the block profile: 1ns for all waits, 0 for none
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub block_rate: String,

    /// Record one in COUNT releases of contended locks: 1 for all, 0 for none
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub mutex_fraction: u32,

    /// Record CPU samples: RATE for each second of CPU time, 100 if none is given, at most 1000
    #[arg(
        long,
        value_name = "RATE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "100",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub cpu: Option<u32>,

    /// Record where threads spend elapsed time, running or waiting
    #[arg(long)]
    pub wall: bool,

    /// Return free memory of the C library from 90 % of this limit on: a size such as 512m, a share
    /// of the available memory such as 80%, or cgroup for the limit of the control group
    #[arg(long, value_name = "LIMIT")]
    pub memory_limit: Option<String>,

    /// Report on the program's children and on the programs that they execute as well
    #[arg(long)]
    pub children: bool,

    /// With --children, report on each process; by default, more than three are added up by program
    #[arg(long, requires = "children")]
    pub each: bool,

    /// Report only on processes whose program or arguments contain this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,

    /// Report only on processes that had at least this much resident memory, such as 100m
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub min_peak: String,

    /// Report also on a program that the out-of-memory killer or SIGKILL ends: keep the counts in a
    /// mapped file, which takes about 1 MiB more. With DIRECTORY, the file of a killed process stays
    /// there, even if this command is killed as well
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true)]
    pub postmortem: Option<Option<PathBuf>>,

    /// End the program by SIGTERM when it has this much resident memory, such as 500m, or when all processes of its control group
    /// hold this share of the group's limit, such as 90%, and report on it
    #[arg(long, value_name = "SIZE|SHARE")]
    pub stop_at: Option<String>,

    /// Print no summary
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,

    /// Print the summary as JSON, one line per process
    #[arg(long)]
    pub json: bool,

    /// Print the resident memory over time as well: by default, its maximum and a small graph
    #[arg(long, conflicts_with = "quiet")]
    pub timeline: bool,

    /// Number of sites in the summary's table, and in all of its lists together
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub sites: usize,

    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
