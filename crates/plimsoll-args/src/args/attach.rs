//! `plimsoll attach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

/// The end of the long help and of the manual page.
const MORE: &str = "\
Examples:
  plimsoll attach 1234                                memory by owner, threads with stacks and waits
  plimsoll attach 1234 --all                          without the limit of 60 lines
  plimsoll attach 1234 --wall 10s                     what all threads do, by elapsed time
  plimsoll attach 1234 --cpu 10s --out cpu.pb.gz      a CPU profile, for `report`, `view` and `go tool pprof`

The program needs no preparation, and none of its memory is changed. A blocked thread is not stopped. A running \
thread is stopped while its registers and its stack are copied, for microseconds. Linux only.

It needs the same user as the program, or root (CAP_SYS_PTRACE), and permission by \
kernel.yama.ptrace_scope. In a container it needs the capability SYS_PTRACE. `plimsoll doctor` says which \
processes it may read.

Exit status:
  0  success
  1  the process cannot be read, with the reason on standard error; or it ended meanwhile
  2  the arguments are invalid";

/// The arguments of `plimsoll attach`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct AttachArguments {
    /// The process id
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,

    /// Sample what all threads do, running or waiting, for this time: 10s, 500ms or 2m
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "cpu")]
    pub wall: Option<Duration>,

    /// Sample the threads that use CPU time, for this time, weighted by the CPU time of each
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub cpu: Option<Duration>,

    /// Samples per second of --wall and --cpu: 1 to 1000. Fewer are taken if they would use more than 3% of
    /// one processor
    #[arg(long, value_name = "NUMBER", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rate: u32,

    /// Write a profile in pprof's format: of --wall or --cpu, otherwise the number of threads by stack
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print all rows, stacks and frames: without it, at most 60 lines
    #[arg(long)]
    pub all: bool,

    /// Print also what was checked, and for how long threads were stopped
    #[arg(short, long)]
    pub verbose: bool,
}

/// Parses a time: a number with the unit `ms`, `s`, `m` or `h`, or without one, which means seconds.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "s" | "" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit} is not ms, s, m or h")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| "not a time such as 10s".to_owned())?;
    let seconds = number * unit;
    match (0.01..=86_400.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("not between 10ms and 24h".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, expected) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("3", 3000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "s", "10x", "1ms", "25h", "-1s", "nan"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
