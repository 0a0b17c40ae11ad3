//! The flame graph of `cargo plimsoll flame`.

use std::io::Write;
use std::path::Path;

use plimsoll_pprof::kinds::{AT_EXIT, PEAK, PROFILE, WALL};

use super::session::Session;
use plimsoll_args::args::{CargoFlameArguments, ViewArguments};
use plimsoll_command::failure::Failure;
use plimsoll_command::plain_text::plain;
use plimsoll_command::report;

/// Returns the name of the profile that the flame graph shows.
///
/// # Errors
/// A run keeps no profile of the requested name.
pub(super) fn profile(arguments: &CargoFlameArguments) -> Result<&'static str, Failure> {
    let run = &arguments.run;
    let default = match (run.cpu, run.wall) {
        (Some(_), _) => PROFILE.name,
        (None, true) => WALL.name,
        (None, false) => PEAK.name,
    };
    let wanted = arguments.of.as_deref().unwrap_or(default);
    let mut names = AT_EXIT.iter().map(|kind| kind.name);
    names.find(|name| *name == wanted).ok_or_else(|| {
        let names: Vec<&str> = AT_EXIT.iter().map(|kind| kind.name).collect();
        let cause = format!("no such profile; available: {}", names.join(", "));
        Failure::new(format!("--of {wanted}"), cause).with_code(2)
    })
}

/// Writes the flame graph of the run, and opens it if that is requested.
pub(super) fn write(arguments: &CargoFlameArguments, session: &Session) -> Result<(), Failure> {
    let kind = profile(arguments)?;
    let out = arguments.run.out.clone().unwrap_or_else(|| session.out());
    let file = out.join(format!("{kind}.pb.gz"));
    if !file.exists() {
        let cause = "the run recorded none";
        return Err(Failure::new(format!("the profile {kind}"), cause));
    }
    let output = &arguments.output;
    let is_svg = output
        .extension()
        .is_some_and(|extension| extension == "svg");
    let view = ViewArguments {
        svg: is_svg.then_some(None),
        html: (!is_svg).then_some(None),
        output: Some(output.clone()),
        sample_type: arguments.sample_type.clone(),
        ..ViewArguments::default()
    };
    report::show_file(&report::name(file)?, &view)?;
    if output == Path::new("-") {
        return Ok(());
    }
    if !arguments.run.quiet {
        // Without standard error, the name is lost. It is the one that the user gave.
        let name = output.display().to_string();
        let _ = writeln!(std::io::stderr(), "flame graph: {}", plain(&name));
    }
    if arguments.open {
        let path = std::path::absolute(output).map_err(|error| Failure::new("--open", error))?;
        open::that_detached(path).map_err(|error| Failure::new("--open", error))?;
    }
    Ok(())
}
