//! `plimsoll tasks`.

use clap::Args;

/// The end of the long help and of the manual page.
const MORE: &str = "\
Examples:
  plimsoll tasks 1234                 tasks with the same awaits together, at most 60 lines
  plimsoll tasks 1234 --all           each task, with all awaits
  plimsoll tasks 1234 --json          the same for programs

The program needs neither `tokio_unstable` nor tracked tasks. It needs debug information with types, of tokio too: \
`debug = \"full\"` in its profile, also in a separate file that belongs to it by its build id. Nothing of the process is \
changed or stopped. Linux on x86-64 with glibc only.

Exit status:
  0  success
  1  the process cannot be read, or its program has no tokio or no types, with the reason on standard error
  2  the arguments are invalid";

/// The arguments of `plimsoll tasks`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct TasksArguments {
    /// The process id
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print each task with all awaits: without it, at most 60 lines
    #[arg(long)]
    pub all: bool,
}
