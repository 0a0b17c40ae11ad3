//! `plimsoll report --summary`: the most important facts about a source, in at most 3 KiB of text.

mod growth;
mod limited;
mod run;
mod sites;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use limited::{Limited, amount, begin, end};
use plimsoll_args::args::ReportArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::growth::Growth;
use plimsoll_command::http::{self, Server};
use plimsoll_command::input::Input;
use plimsoll_command::profile::HEAP;
use plimsoll_command::report::growth::url_of;
use plimsoll_command::report::measure::alone;
use plimsoll_command::report::{missing, write};
use plimsoll_command::time;
use plimsoll_launch::run::compare::Record;

/// The time for the answer of a page.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The page with the owners of the resident memory.
const MEMORY: &str = "/debug/plimsoll/memory?format=json";

/// The beginning of comments that Plimsoll writes: exact totals, errors and losses.
const COMMENT: &str = "plimsoll: ";

/// The number of comments that a summary has, and the maximum size of each.
const COMMENTS: usize = 6;
const MAX_COMMENT: usize = 240;

/// The maximum size of the name of a source in bytes.
const MAX_NAME: usize = 80;

/// Writes the summary.
///
/// # Errors
/// The source cannot be read, or is none of which a summary exists.
pub(crate) fn report(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let name = arguments
        .profile
        .as_deref()
        .ok_or_else(|| missing("FILE|URL"))?;
    let text = text(name)?;
    let output = arguments.view.output.as_deref();
    write(output.filter(|path| *path != Path::new("-")), |to| {
        Ok(to.write_all(text.as_bytes())?)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn text(name: &str) -> Result<String, Failure> {
    let mut to = Limited::default();
    to.line(&format!("plimsoll summary of {}", end(name, MAX_NAME)));
    let path = Path::new(name);
    if path.is_dir() || (name != "-" && http::base_url(name).is_none()) {
        let directory = path.is_dir().then_some(path);
        if let Some(record) = Record::read(name)? {
            run::write(&mut to, name, &record, directory)?;
            return Ok(to.finish());
        }
    }
    write_input(&mut to, name, &Input::read(name, None, false, HEAP)?)?;
    Ok(to.finish())
}

/// Returns the summary of a profile or of a post-mortem file. `name` names it in the text.
///
/// # Errors
/// The profile is inconsistent.
pub(crate) fn of_input(name: &str, input: &Input) -> Result<String, Failure> {
    let mut to = Limited::default();
    to.line(&format!("plimsoll summary of {}", end(name, MAX_NAME)));
    write_input(&mut to, name, input)?;
    Ok(to.finish())
}

fn write_input(to: &mut Limited, name: &str, input: &Input) -> Result<(), Failure> {
    subject(to, input);
    let profile = &input.profile;
    let comments = profile
        .comments()
        .filter_map(|comment| comment.strip_prefix(COMMENT));
    for comment in comments.take(COMMENTS) {
        to.long_line(comment, MAX_COMMENT);
    }
    let program = is_program(name).then(|| url_of(name)).flatten();
    if let Some(growth_page) = &program {
        resident(to, growth_page)?;
    }
    sites::write(to, name, profile, profile.default_sample_type())?;
    if let Some(growth_page) = &program {
        growth_of_program(to, growth_page)?;
    }
    if let Some(file) = &input.post_mortem {
        if file.history.lost > 0 {
            to.line(&format!(
                "lost readings of the history: {}",
                file.history.lost
            ));
        }
        if let Some(growth) = Growth::of_file(file) {
            growth::write(to, &growth.map_err(|error| Failure::new(name, error))?);
        }
    }
    Ok(())
}

/// Writes the kind of the source, and its time.
fn subject(to: &mut Limited, input: &Input) {
    if let Some(file) = &input.post_mortem {
        let program = begin(plimsoll_launch::run::name_of(&file.program), MAX_NAME);
        to.line(&format!(
            "post-mortem file of {program} (process {}), which began at {}",
            file.process,
            time::utc(i64::try_from(file.began_ns).unwrap_or(i64::MAX))
        ));
        return;
    }
    let profile = &input.profile;
    let mut line = match is_program(&input.name) {
        true => "running program".to_owned(),
        false => "profile".to_owned(),
    };
    if profile.time_ns() > 0 {
        line.push_str(&format!(", made at {}", time::utc(profile.time_ns())));
    }
    if profile.duration_ns() > 0 {
        line.push_str(&format!(
            ", of {}",
            alone(profile.duration_ns(), "ns", false)
        ));
    }
    to.line(&line);
}

/// Returns whether the name is the address of a program, without the path of a page.
fn is_program(name: &str) -> bool {
    let profile = |kind| http::profile_url(name, kind);
    // The name of the profile is in the URL only if the given name has none.
    profile(HEAP).is_some() && profile(HEAP) != profile("")
}

/// Requests a page of a program. Returns `None` if the program does not serve it.
fn page(url: &str) -> Result<Option<Vec<u8>>, Failure> {
    let answer = http::request(Server::Named, url, TIMEOUT, |_| {})?;
    Ok((answer.status == 200).then_some(answer.body))
}

/// Writes the resident memory of a program and its largest parts.
fn resident(to: &mut Limited, growth_page: &str) -> Result<(), Failure> {
    let url = growth_page.replacen(plimsoll_command::growth::PATH, MEMORY, 1);
    let Some(body) = page(&url)? else {
        return Ok(());
    };
    let memory: Value = serde_json::from_slice(&body)
        .map_err(|error| Failure::new(&url, format!("not a page of memory: {error}")))?;
    let Some(resident) = memory["kernel"]["resident"].as_i64() else {
        return Ok(());
    };
    let parts = memory["rows"].as_array().into_iter().flatten();
    let mut parts: Vec<(i64, &str)> = parts
        .filter_map(|part| Some((part["resident"].as_i64()?, part["name"].as_str()?)))
        .collect();
    parts.sort_by(|a, b| b.cmp(a));
    let parts: Vec<String> = parts
        .iter()
        .take(4)
        .map(|(bytes, holder)| format!("{} {}", amount(*bytes, "bytes"), begin(holder, 24)))
        .collect();
    let resident = amount(resident, "bytes");
    to.line(&format!(
        "resident: {resident}, of which {}",
        parts.join(", ")
    ));
    Ok(())
}

fn growth_of_program(to: &mut Limited, url: &str) -> Result<(), Failure> {
    // A program that does not observe growth answers with another status.
    if let Some(body) = page(url)? {
        growth::write(
            to,
            &Growth::parse(&body).map_err(|cause| Failure::new(url, cause))?,
        );
    }
    Ok(())
}
