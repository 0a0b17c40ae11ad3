//! `plimsoll tasks`.

use std::process::ExitCode;

use plimsoll_args::args::TasksArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::plain_text::{PlainText, plain_json};
use plimsoll_command::report::{self, Stop};

use crate::process::Process;
use crate::refusal::Target;
use crate::threads::Descriptors;
use crate::{runtimes, tasks_json, tasks_text};

/// Reads the tasks of a process, and shows them in the requested form.
///
/// # Errors
/// The process cannot be read, or what it would need is missing, with the reason; or the output cannot be written.
pub fn tasks(arguments: &TasksArguments) -> Result<ExitCode, Failure> {
    let process = Process::open(Target::check(arguments.pid)?)?;
    let reading = runtimes::read(&process)?;
    let mut descriptors = Descriptors::default();
    if arguments.json {
        let value = tasks_json::value(&process, &reading, &mut descriptors);
        report::write(None, |to| {
            writeln!(to, "{}", plain_json(&format!("{value:#}"))).map_err(Stop::from)
        })?;
    } else {
        let is_all = arguments.all;
        report::write(None, |to| {
            let to = &mut PlainText(to);
            Ok(tasks_text::write(
                to,
                &process,
                &reading,
                &mut descriptors,
                is_all,
            )?)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
