//! `plimsoll ship`.

use clap::{Args, ValueHint};

const EXAMPLES: &str = "\
A directory's finished files move to DESTINATION: post-mortem files whose process has ended, each with a \
summary and a heap profile beside it, and profiles (*.pb.gz). A file is deleted when the destination has \
confirmed it; until then, it waits in DIRECTORY/.plimsoll-ship.

Environment:
  PLIMSOLL_SHIP_TOKEN    the bearer token for an http:// destination
  PLIMSOLL_TOKEN         the token of pages that require one (the setting http_token), or file:PATH

Examples:
  plimsoll ship /var/plimsoll --to /mnt/profiles
  plimsoll ship /var/plimsoll --to http://collector:8080/profiles --drain
  plimsoll ship http://127.0.0.1:6060 --above 500m --step 100m --to http://collector:8080/service";

/// The arguments of `plimsoll ship`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ShipArguments {
    /// Directories with post-mortem files and profiles, and addresses of running programs, such as
    /// http://127.0.0.1:6060
    #[arg(value_name = "DIRECTORY|URL", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<String>,
    /// An existing directory, or http://HOST/PATH
    #[arg(long, value_name = "DESTINATION", value_hint = ValueHint::AnyPath)]
    pub to: String,
    /// Ship the heap profile of a running program only while its resident memory is above this, such as
    /// 500m
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub above: String,
    /// Ship the next heap profile when the resident memory has grown by this since the last one: a size
    /// such as 100m, or a share such as 10%
    #[arg(long, value_name = "SIZE|SHARE", default_value = "10%")]
    pub step: String,
    /// Time between two readings of the directories and programs
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub every: String,
    /// Keep at most this many waiting files of each directory, and delete the oldest beyond
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: Option<u32>,
    /// Ship what is finished now, and end: with status 1 if a file is left
    #[arg(long)]
    pub once: bool,
    /// After SIGTERM, ship what is finished before the end
    #[arg(long, conflicts_with = "once")]
    pub drain: bool,
}
