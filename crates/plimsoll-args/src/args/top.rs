//! `plimsoll top`.

use std::time::Duration;

use clap::Args;

/// The end of the long help and of the manual page.
const MORE: &str = "\
Keys:
  1 to 9, Tab      overview, sites, sizes, locks, threads and tasks, GC, CPU, growth, flame graph
  s, S             sort by the next or the previous column
  r                reverse the order
  /                filter: show only rows that contain a text; Esc clears it
  p, Space         pause and resume
  f                fetch the profiles now
  + -              read more often or less often
  Up Down PgUp PgDn Home End   move in a table; Enter shows the stack of a row
  ?                help
  q, Ctrl-C        quit

The program must contain Plimsoll and serve its pages: set PLIMSOLL=http=127.0.0.1:6060 in its \
environment. Each table of sites needs a profile, which costs the program some milliseconds: so \
profiles are fetched less often than the figures, and only while they are shown. \
The token in PLIMSOLL_TOKEN is sent to a URL, not to the ports of a process id.

NO_COLOR (if set) disables colours; in a locale without UTF-8, only ASCII is drawn.

Exit codes: 0 after q or a complete --once; 1 if the program cannot be found or read; 2 for \
invalid arguments. A signal that ends it restores the terminal.";

/// The arguments of `plimsoll top`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct TopArguments {
    /// The program: the URL of its pages (http://127.0.0.1:6060), or its process id
    #[arg(value_name = "URL|PID")]
    pub program: String,

    /// Print the view as plain text, and exit. Takes one interval, because of the rates
    #[arg(long)]
    pub once: bool,

    /// Seconds between readings of the figures: 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,

    /// Seconds between fetches of the profiles: 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub profile_interval: Duration,

    /// Show only table rows that contain this text, ignoring case
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub filter: String,

    /// Number of rows that --once prints of each table
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub rows: usize,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not between 0.1 and 3600".into())
    }
}
