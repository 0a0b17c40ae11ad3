//! `plimsoll top`.

use std::time::Duration;

use clap::Args;

/// Below the options in the long help, and in the manual page.
const MORE: &str = "\
Keys:
  1 to 6, Tab      overview, sites, sizes, locks, threads and tasks, GC
  s, S             sort by the next column, or by the one before
  r                turn the order around
  /                type a filter: only rows with that text are shown; Esc clears it
  p, Space         stand still, and go on
  f                fetch the profiles at once
  + -              read more often, or less
  Up Down PgUp PgDn Home End   move in a table; Enter shows where a row comes from
  ?                help
  q, Ctrl-C        quit

The program must have Plimsoll in it, and serve its pages: PLIMSOLL=http=127.0.0.1:6060 in its \
environment does that. Each table of places takes a profile, which costs the program some \
milliseconds: so those are fetched less often than the figures, and only while they are shown.

NO_COLOR (set to anything) takes the colour away; in a locale without UTF-8 all is drawn in ASCII.

Exit codes: 0 after q or a complete --once; 1 if the program cannot be found or read; 2 for \
arguments that make no sense. A signal that ends it leaves the terminal as it was.";

/// The arguments of `plimsoll top`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = MORE)]
pub struct TopArguments {
    /// The program: the URL of its pages (http://127.0.0.1:6060), or its process id
    #[arg(value_name = "URL|PID")]
    pub program: String,

    /// Print what there is as plain text, and end. Takes one interval, because of the rates
    #[arg(long)]
    pub once: bool,

    /// How often the figures are read, in seconds: 0.1 to 3600
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,

    /// How often the profiles are fetched, in seconds: 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub profile_interval: Duration,

    /// Show only rows of tables with this text in them, in small or capital letters
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub filter: String,

    /// How many rows of each table --once prints
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
