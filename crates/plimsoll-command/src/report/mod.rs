//! `plimsoll report`: shows a profile, or a difference of profiles, in several forms.

mod by;
mod counted;
mod filter;
mod flame;
mod folded;
pub mod growth;
pub mod history;
mod html;

mod json;
mod list;
pub mod measure;
pub mod shown;
mod text;

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::files;
use crate::input::{Input, Moment};
use crate::plain_text::PlainText;
use crate::profile::HEAP;
use crate::time;
use counted::Spread;
use measure::{alone, share};
use plimsoll_args::args::{ReportArguments, ViewArguments};
use shown::Shown;

/// The profile that gives an overview of a running program.
const MEMORY: &str = "memory";

/// Shows a profile.
///
/// # Errors
/// The profile cannot be read, or cannot be shown in the requested form.
pub fn report(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let mut view = arguments.view.clone();
    let profile = match (&arguments.profile, view.take_picture_file()) {
        (Some(profile), file) => {
            view.output = view.output.or(file);
            profile.clone()
        }
        // `--html PROFILE`
        (None, Some(file)) => name(file)?,
        (None, None) => return Err(missing("FILE|URL")),
    };
    let moment = moment(arguments)?;
    if arguments.growth {
        return growth::report(&profile, &view);
    }
    show(&profile, arguments.base.as_deref(), moment, &view)
}

/// Returns the moment that the arguments request.
fn moment(arguments: &ReportArguments) -> Result<Moment, Failure> {
    let time = |option: &str, text: &str| {
        let cause = format!("{text} is not a time, such as 2026-01-31 23:59:59 or 1769903999");
        time::parse(text).ok_or_else(|| Failure::new(option, cause).with_code(2))
    };
    Ok(match (&arguments.at, &arguments.from, &arguments.to) {
        (Some(at), ..) => Moment::At(time("--at", at)?),
        (None, Some(from), Some(to)) => Moment::Between(time("--from", from)?, time("--to", to)?),
        _ => Moment::End,
    })
}

/// Returns the failure that a required argument is missing.
pub fn missing(argument: &str) -> Failure {
    let cause = "the argument is missing; see --help";
    Failure::new(format!("<{argument}>"), cause).with_code(2)
}

/// Returns the profile name that was parsed as the file of `--svg` or `--html`.
pub fn name(file: PathBuf) -> Result<String, Failure> {
    file.into_os_string().into_string().map_err(|name| {
        Failure::new(Path::new(&name).display(), "the name is not UTF-8").with_code(2)
    })
}

fn show(
    name: &str,
    base: Option<&str>,
    moment: Moment,
    view: &ViewArguments,
) -> Result<ExitCode, Failure> {
    check(view)?;
    // A requested sample type or label is one of the heap profile.
    let default = match (&view.sample_type, &view.by) {
        (None, None) => MEMORY,
        _ => HEAP,
    };
    let input = match moment {
        Moment::End => Input::read(name, base, view.normalize, default)?,
        Moment::At(_) => Input::read_at(name, moment, "--at", view.normalize)?,
        Moment::Between(..) => Input::read_at(name, moment, "--from", view.normalize)?,
    };
    show_input(&input, view)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the profile of a file in the requested form.
pub fn show_file(name: &str, view: &ViewArguments) -> Result<(), Failure> {
    show_input(&Input::read(name, None, false, HEAP)?, view)
}

/// Checks the arguments that do not depend on the profile.
pub fn check(view: &ViewArguments) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&view.nodefraction) {
        let cause = format!("{} is not between 0 and 1", view.nodefraction);
        return Err(Failure::new("--nodefraction", cause).with_code(2));
    }
    Ok(())
}

/// Shows a profile or a difference in the requested form.
///
/// # Errors
/// It cannot be shown in this form, or the output cannot be written.
pub fn show_input(input: &Input, view: &ViewArguments) -> Result<(), Failure> {
    let shown = Shown::new(input, view)?;
    let shown = &shown;
    let to = view
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    let is_picture = view.svg.is_some() || view.html.is_some();
    if is_picture && view.output.is_none() && io::stdout().is_terminal() {
        let option = if view.svg.is_some() {
            "--svg"
        } else {
            "--html"
        };
        let cause = "standard output is a terminal; redirect it, or give a file with -o FILE";
        return Err(Failure::new(option, cause).with_code(2));
    }
    write(to, |to| {
        if view.svg.is_some() {
            return flame::svg(to, shown);
        }
        if view.html.is_some() {
            return html::html(to, shown);
        }
        if view.json {
            return json::json(to, shown, view);
        }
        let to = &mut PlainText(to);
        if let Some(key) = &view.by {
            by::by(to, shown, view, key)
        } else if let Some(expression) = &view.peek {
            text::peek(to, shown, view, expression)
        } else if let Some(expression) = &view.list {
            list::list(to, shown, view, expression)
        } else if view.tree {
            text::tree(to, shown, view)
        } else if view.folded {
            folded::folded(to, shown)
        } else if view.comments {
            comments(to, shown)
        } else {
            text::top(to, shown, view)?;
            match &input.post_mortem {
                Some(post_mortem) => history::write(to, &input.name, post_mortem, view),
                None => Ok(()),
            }
        }
    })
}

fn comments(to: &mut dyn Write, shown: &Shown<'_>) -> Result<(), Stop> {
    for comment in shown.input.profile.comments() {
        writeln!(to, "{comment}")?;
    }
    Ok(())
}

/// The reason why a report ends early.
#[derive(Debug)]
pub enum Stop {
    /// The report cannot be made.
    Failure(Failure),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Writes a report to a file or to standard output. If the reader closes standard output early, as
/// `head` does, the command ends without an error.
pub fn write(
    to: Option<&Path>,
    report: impl FnOnce(&mut dyn Write) -> Result<(), Stop>,
) -> Result<(), Failure> {
    let fail = |error| match to {
        Some(path) => Failure::new(path.display(), error),
        None => Failure::new("standard output", error),
    };
    let done = match to {
        Some(path) => {
            let mut file = BufWriter::new(files::create(path).map_err(fail)?);
            report(&mut file).and_then(|()| Ok(file.flush()?))
        }
        None => {
            let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
            let done = report(&mut out).and_then(|()| Ok(out.flush()?));
            if done.is_err() {
                // Discards the buffer. Dropping the writer would write it again.
                let _ = out.into_parts();
            }
            done
        }
    };
    match done {
        Err(Stop::Failure(failure)) => Err(failure),
        Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(Stop::Output(error)) => Err(fail(error)),
        Ok(()) => Ok(()),
    }
}
