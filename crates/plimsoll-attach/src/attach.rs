//! `plimsoll attach`.

use std::process::ExitCode;

use plimsoll_args::args::AttachArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::plain_text::{PlainText, plain_json};
use plimsoll_command::report::{self, Stop};
use serde_json::Value;

use crate::json;
use crate::names::Names;
use crate::process::Process;
use crate::profile::{Profile, Values};
use crate::refusal::Target;
use crate::sampling;
use crate::text::{self, Extent};
use crate::view::View;

/// Reads a process, and shows it in the requested form.
///
/// # Errors
/// The process cannot be read, with the first reason why; or the output cannot be written.
pub fn attach(arguments: &AttachArguments) -> Result<ExitCode, Failure> {
    let process = Process::open(Target::check(arguments.pid)?)?;
    match (arguments.wall, arguments.cpu) {
        (Some(duration), _) => sample(arguments, &process, Values::Wall, duration)?,
        (None, Some(duration)) => sample(arguments, &process, Values::Cpu, duration)?,
        (None, None) => show(arguments, &process)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(arguments: &AttachArguments, process: &Process) -> Result<(), Failure> {
    let view = View::read(process)?;
    let addresses: Vec<usize> = view
        .stacks
        .iter()
        .flat_map(|stack| stack.frames.iter().copied())
        .collect();
    let names = Names::find(process, &addresses);
    if let Some(path) = &arguments.out {
        Profile::from(&view).write_file(path, &names)?;
    }
    if arguments.json {
        return write_json(&json::view(process, &view, &names));
    }
    let extent = Extent {
        is_all: arguments.all,
        is_verbose: arguments.verbose,
    };
    report::write(None, |to| {
        let to = &mut PlainText(to);
        Ok(text::write(to, process, &view, &names, extent)?)
    })
}

fn sample(
    arguments: &AttachArguments,
    process: &Process,
    values: Values,
    duration: std::time::Duration,
) -> Result<(), Failure> {
    let profile = sampling::sample(process, values, duration, arguments.rate);
    let names = Names::find(process, &profile.addresses());
    if let Some(path) = &arguments.out {
        profile.write_file(path, &names)?;
    }
    let target = &process.target;
    if arguments.json {
        return write_json(&profile.to_json(target.pid, &names));
    }
    let subject = format!("Process {}: {}", target.pid, target.name);
    report::write(None, |to| {
        let to = &mut PlainText(to);
        Ok(profile.write_text(to, &subject, &names, arguments.all)?)
    })
}

fn write_json(value: &Value) -> Result<(), Failure> {
    report::write(None, |to| {
        writeln!(to, "{}", plain_json(&format!("{value:#}"))).map_err(Stop::from)
    })
}
