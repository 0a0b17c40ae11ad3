//! `plimsoll run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// The arguments of `plimsoll run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
What the program reads, writes and is sent goes through untouched, and so does how it ends: the exit \
status is the program's. If it cannot be executed, it is 126, if it is not found, 127, and 125 if \
Plimsoll itself fails.

Examples:
  plimsoll run -- ./program --its --arguments
  plimsoll run --out /tmp/profiles --heap-rate 64k -- python3 script.py
  plimsoll run --http 6060 -- ./server     then: plimsoll top http://127.0.0.1:6060")]
pub struct RunArguments {
    /// Serve the pages of /debug/pprof/ and /metrics meanwhile: host:port, or a port of 127.0.0.1.
    /// With --children, a list of the processes, each of which has a port of its own
    #[arg(long, value_name = "ADDRESS")]
    pub http: Option<String>,

    /// Write the profiles, and the numbers, to this directory at the end
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,

    /// Mean bytes between two samples of the heap profile: 1 for all allocations, 0 for none
    #[arg(long, value_name = "BYTES", default_value = "512k")]
    pub heap_rate: String,

    /// Time of waiting for each sample of the block profile: 1ns for all waits, 0 for none
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    pub block_rate: String,

    /// One in how many releases of locks that others wait for is recorded: 1 for all, 0 for none
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub mutex_fraction: u32,

    /// Have the C library give free memory back from 90 % of this on: a size such as 512m, a share
    /// of what there is such as 80%, or cgroup for the limit of the control group
    #[arg(long, value_name = "LIMIT")]
    pub memory_limit: Option<String>,

    /// Report on the children of the program, and on what it or they execute, as well
    #[arg(long)]
    pub children: bool,

    /// Report on a program that is killed, too, by the kernel for want of memory or by anybody: it
    /// counts in a file that is mapped, which takes about one MiB more
    #[arg(long)]
    pub postmortem: bool,

    /// No summary
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,

    /// The summary as JSON, a line for each process
    #[arg(long)]
    pub json: bool,

    /// How many sites to show in each list of the summary
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub sites: usize,

    /// The program, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}
