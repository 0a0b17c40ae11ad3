//! `plimsoll diff`: the difference of two profiles or of two runs, and limits of growth.

mod profiles;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_args::args::{DiffArguments, ViewArguments};
use plimsoll_command::failure::{EXCEEDED, Failure};
use plimsoll_command::plain_text::{PlainText, plain_json};
use plimsoll_command::report::{self, Stop, missing, name};
use plimsoll_launch::run::compare::{Comparison, Exceeded, Limit, Record, check};

/// The default number of sites in a list.
const SITES: usize = 5;

/// Shows the difference of two profiles or of two runs, and checks the limits.
///
/// # Errors
/// One of them cannot be read, a limit is invalid, or the difference cannot be shown in the requested
/// form.
pub fn diff(arguments: &DiffArguments) -> Result<ExitCode, Failure> {
    let mut view = arguments.view.clone();
    let (base, new) = match (&arguments.profile, view.take_picture_file()) {
        (Some(profile), file) => {
            view.output = view.output.or(file);
            (arguments.base.clone(), profile.clone())
        }
        // `--html BASE NEW`
        (None, Some(file)) => (name(file)?, arguments.base.clone()),
        (None, None) => return Err(missing("NEW")),
    };
    let limits = arguments.fail_over.iter().map(|text| Limit::parse(text));
    let limits: Vec<Limit> = limits.collect::<Result<_, _>>()?;
    report::check(&view)?;
    let exceeded = match (Record::read(&base)?, Record::read(&new)?) {
        (None, None) => profiles::show(&base, &new, &view, arguments.markdown, &limits)?,
        (Some(before), Some(now)) => {
            refuse_profile_options(&view, &new)?;
            let comparison = Comparison::of_runs(&before, &now);
            let exceeded = check(&limits, &comparison)?;
            show_runs(&comparison, &view, arguments.markdown, &exceeded)?;
            exceeded
        }
        (before, _) => {
            let (run, profile) = match before {
                Some(_) => (&base, &new),
                None => (&new, &base),
            };
            let cause = format!("it is a run, and {profile} is a profile; compare two of a kind");
            return Err(Failure::new(run, cause).with_code(2));
        }
    };
    for limit in &exceeded {
        // If standard error is closed, the exit status remains.
        let _ = writeln!(std::io::stderr(), "plimsoll: {}", limit.failure());
    }
    Ok(match exceeded.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXCEEDED),
    })
}

/// Returns the maximum number of sites in a list.
fn sites(view: &ViewArguments) -> usize {
    match view.nodecount {
        None => SITES,
        Some(0) => usize::MAX,
        Some(count) => count,
    }
}

fn show_runs(
    comparison: &Comparison,
    view: &ViewArguments,
    is_markdown: bool,
    exceeded: &[Exceeded],
) -> Result<(), Failure> {
    if view.json {
        // Strings of JSON need no other escapes.
        let json = comparison.json(exceeded);
        return report::write(file(view), |to| {
            Ok(writeln!(to, "{}", plain_json(&format!("{json:#}")))?)
        });
    }
    let text = match is_markdown {
        true => comparison.markdown(sites(view), exceeded),
        false => comparison.text(sites(view), exceeded),
    };
    write(view, &text)
}

/// Writes text to the requested file or to standard output.
fn write(view: &ViewArguments, text: &str) -> Result<(), Failure> {
    report::write(file(view), |to| {
        PlainText(to).write_all(text.as_bytes()).map_err(Stop::from)
    })
}

/// Returns the requested file; `None` for standard output.
fn file(view: &ViewArguments) -> Option<&Path> {
    let path = view.output.as_deref();
    path.filter(|path| *path != Path::new("-"))
}

/// Fails if the options are for profiles only.
fn refuse_profile_options(view: &ViewArguments, run: &str) -> Result<(), Failure> {
    let given = [
        ("--tree", view.tree),
        ("--peek", view.peek.is_some()),
        ("--list", view.list.is_some()),
        ("--by", view.by.is_some()),
        ("--folded", view.folded),
        ("--svg", view.svg.is_some()),
        ("--html", view.html.is_some()),
        ("--comments", view.comments),
        ("--sample-type", view.sample_type.is_some()),
        ("--cum", view.cum),
        ("--unit", view.unit.is_some()),
        ("--normalize", view.normalize),
        ("--focus", view.focus.is_some()),
        ("--ignore", view.ignore.is_some()),
        ("--tag", !view.tag.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((option, _)) => {
            let cause = format!(
                "it is for profiles, and {run} is a run; compare profiles in it, such as {run}/heap.pb.gz"
            );
            Err(Failure::new(option, cause).with_code(2))
        }
    }
}
