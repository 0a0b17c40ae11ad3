//! `plimsoll doctor`: what works here, what does not, and what to change.
//!
//! Without an argument, of the machine; of a program's file, what comes of profiling it; of a
//! process, what it has in it; of a URL, what a program that serves its pages says. Findings are
//! lines; those that are `bad` make the exit code 1.

mod findings;
mod machine;
mod process;
mod program;
mod settings;
mod url;

use std::env;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use self::findings::Section;
use crate::Failure;
use crate::args::DoctorArguments;
use crate::program::{Program, find_in_environment};

/// Says what works and what does not. The exit code is 0 if everything does that is needed, and 1
/// otherwise.
///
/// # Errors
/// There is no such program or process, it cannot be looked at, or nobody answers at that URL.
pub(crate) fn carry_out(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let sections = examine(arguments.subject.as_deref())?;
    let text = match arguments.json {
        true => format!("{:#}\n", findings::json(&sections)),
        false => findings::text(&sections, has_colours()),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => {}
        // Whoever reads has seen enough.
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
        return Ok(vec![machine::section()]);
    };
    let text = subject.to_string_lossy();
    if url::is_one(&text) {
        return Ok(vec![url::section(&text)?]);
    }
    let mut sections = match text.parse() {
        Ok(id) => process::sections(id)?,
        Err(_) => vec![program_or_wrapped(&find_in_environment(subject)?)],
    };
    sections.push(machine::section());
    Ok(sections)
}

/// Findings about a program, or about the one that a wrapper script executes in its place.
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

/// Whether somebody looks at it who can see colours, and wants them.
fn has_colours() -> bool {
    let unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let unable = env::var_os("TERM").is_none_or(|terminal| terminal == "dumb");
    io::stdout().is_terminal() && !unwanted && !unable
}
