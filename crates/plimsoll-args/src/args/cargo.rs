//! `cargo plimsoll`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueHint};

use super::RunArguments;

/// The end of the help and of the manual page.
const MORE: &str = "\
Exit status:
  The status of cargo, which is the program's for `run` and `flame`
  2  the arguments are invalid
 125  Plimsoll failed; or a program that cargo ran was not run by Plimsoll
 127  cargo does not exist

Environment:
  CARGO  the program cargo, which cargo sets for its subcommands [default: cargo]";

/// The end of the help of `run`.
const RUN: &str = "\
Examples:
  cargo plimsoll run                                  the release build, with line numbers
  cargo plimsoll run --bin server --http 6060 -- --verbose
  cargo plimsoll run --example demo --features extra --out /tmp/profiles
  cargo plimsoll run --profile dev --heap-rate 1";

/// The end of the help of `test`.
const TEST: &str = "\
Each test executable has a summary. --out and --diff have a directory for each: PACKAGE.TARGET. \
Documentation tests run without Plimsoll.

Examples:
  cargo plimsoll test
  cargo plimsoll test -p store --test recovery -- --test-threads 1
  cargo plimsoll test --out before
  cargo plimsoll test --diff before";

/// The end of the help of `bench`.
const BENCH: &str = "\
Each benchmark executable has a summary. --out and --diff have a directory for each: PACKAGE.TARGET.

Examples:
  cargo plimsoll bench
  cargo plimsoll bench --bench insert --out before
  cargo plimsoll bench --bench insert --diff before";

/// The end of the help of `flame`.
const FLAME: &str = "\
Examples:
  cargo plimsoll flame                                flame.html: the heap at its peak
  cargo plimsoll flame --cpu -o cpu.svg               the CPU time
  cargo plimsoll flame --of heap -t alloc_space --open -- input.txt
  cargo plimsoll flame --example demo -q";

/// Builds the package with line numbers, runs its programs, and reports their memory, locks and threads
#[derive(Clone, Debug, Parser)]
#[command(
    name = "cargo-plimsoll",
    bin_name = "cargo plimsoll",
    version,
    propagate_version = true
)]
pub struct CargoArguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: CargoCommand,
}

/// The subcommands of `cargo plimsoll`.
#[derive(Clone, Debug, Subcommand)]
pub enum CargoCommand {
    /// Run a binary or example of the package
    Run(CargoRunArguments),
    /// Run the tests
    Test(CargoTestArguments),
    /// Run the benchmarks
    Bench(CargoTestArguments),
    /// Run a binary or example, and write a flame graph
    Flame(CargoFlameArguments),
}

impl CargoArguments {
    /// Returns the command line as clap knows it.
    pub fn clap_command() -> clap::Command {
        let program = |command: clap::Command, about: &'static str, more: &'static str| {
            let command = command.about(about).long_about(None).after_help(more);
            command.mut_arg("command", |arguments| {
                arguments
                    .required(false)
                    .value_name("ARGUMENTS")
                    .help("The program's arguments")
            })
        };
        let tests = |command: clap::Command, about: &'static str, more: &'static str| {
            program(command, about, more).mut_arg("command", |arguments| {
                arguments
                    .trailing_var_arg(false)
                    .last(true)
                    .num_args(0..)
                    .help("Arguments of the executables")
            })
        };
        Self::command()
            .after_long_help(MORE)
            .mut_subcommand("run", |run| {
                program(run, "Run a binary or example of the package", RUN)
            })
            .mut_subcommand("test", |test| tests(test, "Run the tests", TEST))
            .mut_subcommand("bench", |bench| tests(bench, "Run the benchmarks", BENCH))
            .mut_subcommand("flame", |flame| {
                let about = "Run a binary or example, and write a flame graph";
                program(flame, about, FLAME)
            })
    }
}

/// The options of cargo that all subcommands have.
#[derive(Args, Clone, Debug)]
pub struct BuildArguments {
    /// The package; may be repeated for tests and benchmarks
    #[arg(short, long, value_name = "SPEC", help_heading = "Cargo")]
    pub package: Vec<String>,
    /// Features to activate
    #[arg(short = 'F', long, value_name = "FEATURES", help_heading = "Cargo")]
    pub features: Vec<String>,
    /// Activate all features
    #[arg(long, help_heading = "Cargo")]
    pub all_features: bool,
    /// Do not activate the feature `default`
    #[arg(long, help_heading = "Cargo")]
    pub no_default_features: bool,
    /// Build with the profile `release`: the default of `run`, `bench` and `flame`
    #[arg(short, long, help_heading = "Cargo", conflicts_with = "profile")]
    pub release: bool,
    /// Build with this profile; always with line tables and symbols
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub profile: Option<String>,
    /// Build for this target, whose programs this machine must be able to run
    #[arg(long, value_name = "TRIPLE", help_heading = "Cargo")]
    pub target: Vec<String>,
    /// Directory for all that is built
    #[arg(long, value_name = "DIRECTORY", help_heading = "Cargo", value_hint = ValueHint::DirPath)]
    pub target_dir: Option<PathBuf>,
    /// The file Cargo.toml
    #[arg(long, value_name = "PATH", help_heading = "Cargo", value_hint = ValueHint::FilePath)]
    pub manifest_path: Option<PathBuf>,
    /// Number of parallel jobs of the build
    #[arg(short, long, value_name = "N", help_heading = "Cargo")]
    pub jobs: Option<String>,
    /// Cargo.lock must stay unchanged
    #[arg(long, help_heading = "Cargo")]
    pub locked: bool,
    /// Build without the network
    #[arg(long, help_heading = "Cargo")]
    pub offline: bool,
    /// Both --locked and --offline
    #[arg(long, help_heading = "Cargo")]
    pub frozen: bool,
    /// A value of cargo's configuration, or a file with values
    #[arg(long, value_name = "KEY=VALUE|PATH", help_heading = "Cargo")]
    pub config: Vec<String>,
    /// Verbose output of cargo; given twice, with the output of build scripts
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = "Cargo")]
    pub verbose: u8,
}

/// The arguments of `cargo plimsoll run`.
#[derive(Args, Clone, Debug)]
pub struct CargoRunArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub program: ProgramArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub build: BuildArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArguments,
}

/// The program that `run` and `flame` run.
#[derive(Args, Clone, Debug)]
pub struct ProgramArguments {
    /// The binary to run
    #[arg(
        long,
        value_name = "NAME",
        help_heading = "Cargo",
        conflicts_with = "example"
    )]
    pub bin: Option<String>,
    /// The example to run
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub example: Option<String>,
}

/// The arguments of `cargo plimsoll test` and `bench`.
#[derive(Args, Clone, Debug)]
pub struct CargoTestArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub targets: TargetArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub build: BuildArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArguments,
}

/// The executables that `test` and `bench` run.
#[derive(Args, Clone, Debug)]
pub struct TargetArguments {
    /// Run only those whose name contains this text
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// All packages of the workspace
    #[arg(long, visible_alias = "all", help_heading = "Cargo")]
    pub workspace: bool,
    /// Leave out this package
    #[arg(long, value_name = "SPEC", help_heading = "Cargo")]
    pub exclude: Vec<String>,
    /// The library
    #[arg(long, help_heading = "Cargo")]
    pub lib: bool,
    /// This binary
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub bin: Vec<String>,
    /// All binaries
    #[arg(long, help_heading = "Cargo")]
    pub bins: bool,
    /// This example
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub example: Vec<String>,
    /// All examples
    #[arg(long, help_heading = "Cargo")]
    pub examples: bool,
    /// This test
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub test: Vec<String>,
    /// All targets that are tested by default, without documentation tests
    #[arg(long, help_heading = "Cargo")]
    pub tests: bool,
    /// This benchmark
    #[arg(long, value_name = "NAME", help_heading = "Cargo")]
    pub bench: Vec<String>,
    /// All benchmarks
    #[arg(long, help_heading = "Cargo")]
    pub benches: bool,
    /// All targets
    #[arg(long, help_heading = "Cargo")]
    pub all_targets: bool,
    /// Go on after an executable fails
    #[arg(long, help_heading = "Cargo")]
    pub no_fail_fast: bool,
}

/// The arguments of `cargo plimsoll flame`.
#[derive(Args, Clone, Debug)]
pub struct CargoFlameArguments {
    /// Write to this file: SVG if its name ends with .svg, and else a page for browsers
    #[arg(short, long, value_name = "FILE", default_value = "flame.html", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Show this profile of the run, such as heap, block or memory
    /// [default: profile (CPU time) with --cpu, wall with --wall, else peak]
    #[arg(long, value_name = "PROFILE")]
    pub of: Option<String>,
    /// The sample type of the profile, such as alloc_space of heap
    #[arg(short = 't', long, value_name = "NAME")]
    pub sample_type: Option<String>,
    /// Open the file
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub program: ProgramArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub build: BuildArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArguments,
}

impl CargoCommand {
    /// Returns the options of cargo.
    pub fn build(&self) -> &BuildArguments {
        match self {
            Self::Run(arguments) => &arguments.build,
            Self::Test(arguments) | Self::Bench(arguments) => &arguments.build,
            Self::Flame(arguments) => &arguments.build,
        }
    }

    /// Returns the options of `plimsoll run`, with the arguments of the program as its command.
    pub fn run(&self) -> &RunArguments {
        match self {
            Self::Run(arguments) => &arguments.run,
            Self::Test(arguments) | Self::Bench(arguments) => &arguments.run,
            Self::Flame(arguments) => &arguments.run,
        }
    }

    /// Returns the arguments of the program.
    pub fn arguments(&self) -> &[OsString] {
        &self.run().command
    }

    /// Returns whether several executables run, one after the other.
    pub fn has_several(&self) -> bool {
        matches!(self, Self::Test(_) | Self::Bench(_))
    }
}
