//! `cargo plimsoll`: cargo builds the programs and runs them by this command, which cargo calls the
//! runner of the target.
//!
//! Cargo finds the executables, and gives each its working directory and environment. Settings reach
//! cargo as environment variables, which replace those of configuration files whatever their form:
//! cargo refuses values of `--config` of another form than those of the files.

mod command;
mod flame;
mod runner;
mod session;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;

use plimsoll_args::args::{CargoArguments, CargoCommand};
use plimsoll_command::failure::Failure;
use plimsoll_launch::run::FAILED;
use plimsoll_launch::run::child;
use session::Session;

/// The first argument of this command as runner.
const RUNNER: &str = "--runner-of";

/// Runs the subcommand, or the program as runner. Returns the name for the failure's message as well.
pub(crate) fn run(mut arguments: Vec<OsString>) -> (Result<ExitCode, Failure>, &'static str) {
    if arguments.get(1).is_some_and(|first| first == RUNNER) {
        return (runner::run(&arguments[2..]), "plimsoll");
    }
    // Cargo passes the name of the subcommand.
    if arguments.get(1).is_some_and(|first| first == "plimsoll") {
        arguments.remove(1);
    }
    let parsed = parse(&arguments).unwrap_or_else(|error| error.exit());
    (start(&arguments, &parsed), "cargo plimsoll")
}

fn parse(arguments: &[OsString]) -> Result<CargoCommand, clap::Error> {
    let matches = CargoArguments::clap_command().try_get_matches_from(arguments)?;
    Ok(CargoArguments::from_arg_matches(&matches)?.command)
}

/// Runs cargo, and ends this process as cargo ended. Returns only if that failed.
fn start(arguments: &[OsString], parsed: &CargoCommand) -> Result<ExitCode, Failure> {
    if let CargoCommand::Flame(arguments) = parsed {
        flame::profile(arguments)?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let host = command::host(&cargo)?;
    let session = Session::new(arguments).map_err(|failure| failure.with_code(FAILED))?;
    let variables = command::variables(parsed.build(), &command::profiles(parsed), &host, &session);
    session
        .keep_environment(variables.iter().map(|(name, _)| name.as_str()))
        .map_err(|failure| failure.with_code(FAILED))?;
    let mut words = vec![cargo];
    words.extend(command::words(parsed));
    let environment: Vec<(&str, OsString)> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let ended = child::start(&words, &environment)
        .and_then(|running| running.wait(|| {}))
        .map_err(|error| command::not_executed(&words[0], &error))?;
    let has_run = session.has_run();
    if let CargoCommand::Flame(arguments) = parsed
        && has_run
    {
        let written = flame::write(arguments, &session);
        // If both failed, the user needs the program's status.
        if ended.is_success() {
            written.map_err(|failure| failure.with_code(FAILED))?;
        }
    }
    drop(session);
    if ended.is_success() && !has_run && must_run(parsed) {
        let cause = "cargo ran no program by Plimsoll: if its configuration sets build.target, pass --target as well";
        return Err(Failure::new("nothing to report", cause).with_code(FAILED));
    }
    ended.pass_on()
}

/// Returns whether cargo runs a program if it succeeds. Without a selection of targets, a package may
/// have only documentation tests.
fn must_run(parsed: &CargoCommand) -> bool {
    match parsed {
        CargoCommand::Run(_) | CargoCommand::Flame(_) => true,
        CargoCommand::Test(arguments) | CargoCommand::Bench(arguments) => {
            let targets = &arguments.targets;
            // Cargo succeeds without any benchmark or test of a package of that kind.
            targets.lib || !targets.test.is_empty() || !targets.bin.is_empty()
        }
    }
}
