//! `plimsoll doctor`: checks, their results, and recommended actions.
//!
//! Without an argument, it checks the machine, and prints the parts that work on its platform. It also checks a program's file for profiling, a
//! process for Plimsoll's presence, and a URL's pages for enabled features and losses. Findings are
//! lines; any `bad` finding makes the exit code 1.

mod findings;
mod machine;
mod pages;
mod platform;
mod process;
mod program;
mod settings;
mod url;

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use self::findings::Section;
use plimsoll_args::args::DoctorArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::http::Server;
use plimsoll_command::plain_text::plain_json;
use plimsoll_command::program::{Program, find_in_environment};

/// Prints the findings. The exit code is 0 if everything works that is needed, and 1 otherwise.
///
/// # Errors
/// The program or process does not exist or cannot be read, or no server responds at the URL.
pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let sections = examine(arguments.subject.as_deref())?;
    let text = match arguments.json {
        true => plain_json(&format!("{:#}\n", findings::json(&sections))).into_owned(),
        false => findings::text(&sections, has_colours()),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => {}
        // The reader closed its end of the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => return Err(Failure::new("standard output", error)),
    }
    Ok(match findings::all_work(&sections) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn examine(subject: Option<&OsStr>) -> Result<Vec<Section>, Failure> {
    let Some(subject) = subject else {
        return Ok(vec![machine::section(), platform::section()]);
    };
    let text = subject.to_string_lossy();
    if url::is_one(&text) {
        return Ok(vec![url::section(&text, Server::Named)?]);
    }
    let mut sections = match text.parse() {
        Ok(id) => process::sections(id)?,
        Err(_) => vec![program_or_wrapped(&find_in_environment(subject)?)],
    };
    sections.push(machine::section());
    Ok(sections)
}

/// Returns findings about a program, or about the program that a wrapper script executes in its
/// place.
fn program_or_wrapped(program: &Program) -> Section {
    let wrapped = program.executed_by_script().and_then(|command| {
        let wrapped = find_in_environment(&command).ok()?;
        wrapped.scripts.is_empty().then_some(wrapped)
    });
    match wrapped {
        Some(wrapped) => program::wrapped(program, &wrapped),
        None => program::section(program),
    }
}

/// Returns whether standard output is a terminal with colours, and `NO_COLOR` is not set.
fn has_colours() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let unable = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    io::stdout().is_terminal() && !unwanted && !unable
}
