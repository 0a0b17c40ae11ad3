//! `plimsoll report` and `plimsoll diff`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The arguments of `plimsoll report`.
#[derive(Args, Clone, Debug)]
#[command(after_help = REPORT_EXAMPLES)]
pub struct ReportArguments {
    /// A profile: a file, `-`, or the URL of a page; for a host and port, the memory profile
    #[arg(value_name = "FILE|URL", value_hint = ValueHint::AnyPath)]
    pub profile: Option<String>,
    /// Show the difference from this profile; shares are of its total
    #[arg(long, value_name = "FILE|URL", value_hint = ValueHint::AnyPath)]
    pub base: Option<String>,
    /// Of a post-mortem file, show the kept heap profile that is nearest to this time: seconds since
    /// 1970, or 2026-01-31 23:59:59 in UTC
    #[arg(long, value_name = "TIME", conflicts_with_all = ["base", "from", "to"])]
    pub at: Option<String>,
    /// Of a post-mortem file, show the change of the heap between two kept profiles: the one nearest
    /// to this time, and the one nearest to --to
    #[arg(long, value_name = "TIME", requires = "to", conflicts_with = "base")]
    pub from: Option<String>,
    /// See --from
    #[arg(long, value_name = "TIME", requires = "from", conflicts_with = "base")]
    pub to: Option<String>,
    /// Of a running program or a post-mortem file, show which allocation sites leak, and how fast; with
    /// --json, as JSON
    #[arg(long, conflicts_with_all = ["base", "at", "from", "to", "top", "tree", "peek", "list", "by", "folded", "svg", "html", "comments"])]
    pub growth: bool,
    /// The most important facts as text of at most 3 KiB: exact totals, the error of estimates, the
    /// five largest sites, verdicts on growth, losses. Of a profile, a running program, a post-mortem file
    /// or a run: a directory of `run --out`, or a file with the lines of `run --json`
    #[arg(long, conflicts_with_all = ["growth", "base", "at", "from", "to", "view", "sample_type", "nodecount", "nodefraction", "cum", "unit", "normalize", "source_path", "focus", "ignore", "tag"])]
    pub summary: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArguments,
}

/// The arguments of `plimsoll diff`.
#[derive(Args, Clone, Debug)]
#[command(after_help = DIFF_EXAMPLES)]
pub struct DiffArguments {
    /// The profile to compare with, whose total shares refer to; or a run: a directory of `run --out`,
    /// or a file with the lines of `run --json`
    #[arg(value_name = "BASE", value_hint = ValueHint::AnyPath)]
    pub base: String,
    /// The profile: a file, `-`, or the URL of a page; or another run
    #[arg(value_name = "NEW", value_hint = ValueHint::AnyPath)]
    pub profile: Option<String>,
    /// Exit with status 3 if NEW exceeds BASE by more than this: a share such as 5%, a size such as
    /// 1m, a time such as 10ms, or a number such as 0. NAME is a sample type, or a figure of a run
    /// such as allocations. May be repeated
    #[arg(long, value_name = "[NAME=]LIMIT", conflicts_with = "normalize")]
    pub fail_over: Vec<String>,
    /// A table in GitHub's Markdown, for a comment on a pull request; with five sites, or as many as
    /// --nodecount states
    #[arg(
        long,
        group = "view",
        help_heading = "Views",
        conflicts_with = "normalize"
    )]
    pub markdown: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArguments,
}

/// The view of a profile.
#[derive(Args, Clone, Debug, Default)]
pub struct ViewArguments {
    /// Functions, the largest first: their own value (flat), and with callees (cum) (default)
    #[arg(long, group = "view", help_heading = "Views")]
    pub top: bool,
    /// Functions with their callers above and their callees below
    #[arg(long, group = "view", help_heading = "Views")]
    pub tree: bool,
    /// Like --tree, for the matching functions, with all callers and callees
    #[arg(long, group = "view", value_name = "REGEX", help_heading = "Views")]
    pub peek: Option<String>,
    /// Source lines of the matching functions
    #[arg(long, group = "view", value_name = "REGEX", help_heading = "Views")]
    pub list: Option<String>,
    /// Values of this label, such as type, the largest first
    #[arg(long, group = "view", value_name = "LABEL", help_heading = "Views")]
    pub by: Option<String>,
    /// One stack and its value per line, for other tools: `main;work;leaf 42`
    #[arg(long, group = "view", help_heading = "Views")]
    pub folded: bool,
    /// A flame graph as SVG that browsers search and zoom: to FILE, or to standard output
    #[arg(long, group = "view", value_name = "FILE", num_args = 0..=1, help_heading = "Views", value_hint = ValueHint::FilePath)]
    pub svg: Option<Option<PathBuf>>,
    /// A page for browsers as one file, with flame graph and functions: to FILE, or to standard output
    #[arg(long, group = "view", value_name = "FILE", num_args = 0..=1, help_heading = "Views", value_hint = ValueHint::FilePath)]
    pub html: Option<Option<PathBuf>>,
    /// The rows of --top as JSON, in the units of the profile
    #[arg(long, group = "view", help_heading = "Views")]
    pub json: bool,
    /// The comments of the profile, which the text views print first
    #[arg(long, group = "view", help_heading = "Views")]
    pub comments: bool,

    /// Write to this file; `-` for standard output
    #[arg(short = 'o', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// The sample type: a name such as inuse_space, or its index
    #[arg(short = 't', long, value_name = "NAME", visible_alias = "sample-index")]
    pub sample_type: Option<String>,
    /// Maximum number of functions; 0 for all [default: 80 for --tree, else all]
    #[arg(short = 'n', long, value_name = "N")]
    pub nodecount: Option<usize>,
    /// Leave out functions below this part of the total
    #[arg(long, value_name = "PART", default_value_t = 0.005)]
    pub nodefraction: f64,
    /// Sort by the value with callees (cum)
    #[arg(long)]
    pub cum: bool,
    /// b, kb, mb, gb, ns, us, ms, s, or the unit of the profile [default: chosen by size]
    #[arg(long)]
    pub unit: Option<String>,
    /// Scale the profile to the base's total before subtracting the base
    #[arg(long)]
    pub normalize: bool,
    /// Search sources for --list below this directory, in addition to the current one; files
    /// outside are not opened
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub source_path: Vec<PathBuf>,

    /// Only stacks with a matching function or source file
    #[arg(long, value_name = "REGEX", help_heading = "Filters")]
    pub focus: Option<String>,
    /// No stacks with a matching function or source file
    #[arg(long, value_name = "REGEX", help_heading = "Filters")]
    pub ignore: Option<String>,
    /// Only samples with this label: KEY=VALUE, KEY=REGEX, KEY=FROM:TO in numbers, or a REGEX for
    /// `key=value`
    #[arg(long, value_name = "LABEL", help_heading = "Filters")]
    pub tag: Vec<String>,
}

impl ViewArguments {
    /// Takes the file that follows `--svg` or `--html`.
    pub fn take_picture_file(&mut self) -> Option<PathBuf> {
        let options = [&mut self.svg, &mut self.html];
        options.into_iter().flatten().find_map(Option::take)
    }
}

const REPORT_EXAMPLES: &str = "\
Examples:
  plimsoll report heap.pb.gz                          memory in use, by function
  plimsoll report localhost:6060                      all resident memory of a running program
  plimsoll report localhost:6060 -t inuse_space       its memory in use
  plimsoll report localhost:6060 --growth             which allocation sites leak
  plimsoll report --summary localhost:6060            the most important facts, in 3 KiB
  plimsoll report heap.pb.gz -t alloc_space --cum     all allocations so far, by caller
  plimsoll report heap.pb.gz --html heap.html         a page with a flame graph
  plimsoll report --html heap.pb.gz > heap.html       the same
  plimsoll report heap.pb.gz --list 'Index::insert'   by source line
  plimsoll report heap.pb.gz --by type                by type: Vec<Node>, HashMap<u64, Session>
  plimsoll report heap.pb.gz --tag tenant=acme        for one tenant
  plimsoll report heap.pb.gz --tag bytes=1k:64k       blocks of 1 to 64 KiB
  plimsoll report http://localhost:6060/debug/pprof/mutex --tree
  plimsoll report jeprof.1234.0.f.heap                a heap dump of jemalloc";

const DIFF_EXAMPLES: &str = "\
Examples:
  plimsoll diff before.pb.gz after.pb.gz              increase (+) and decrease (-)
  plimsoll diff before.pb.gz localhost:6060 --cum     growth of a running program since then
  plimsoll diff before.pb.gz after.pb.gz --html diff.html
  plimsoll diff quiet.pb.gz busy.pb.gz --normalize    for runs of different length
  plimsoll diff before.pb.gz after.pb.gz -t alloc_space --fail-over 5%
  plimsoll diff old-run new-run --fail-over allocations=0 --fail-over bytes=5% --markdown";
