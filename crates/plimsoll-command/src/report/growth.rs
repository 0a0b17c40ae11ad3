//! The growth of the allocation sites of a program, while it runs or after its end.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::measure::alone;
use super::{Stop, write};
use crate::failure::Failure;
use crate::growth::{self, Growth};
use crate::http::{self, Server};
use crate::plain_text::{PlainText, plain_json};
use crate::profile::read_post_mortem;
use plimsoll_args::args::ViewArguments;

/// The time for the answer, which names functions.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The default number of sites.
const SITES: usize = 20;

/// The number of innermost functions that are shown of a site.
const FRAMES: usize = 4;

/// Shows the growth of a program's allocation sites.
///
/// # Errors
/// The name belongs to neither a program nor a post-mortem file, the program does not answer
/// or did not observe growth, or the output cannot be written.
pub(super) fn report(name: &str, view: &ViewArguments) -> Result<ExitCode, Failure> {
    let (growth, body) = match (read_post_mortem(name)?, url_of(name)) {
        (Some(file), _) => {
            let growth = Growth::of_file(&file).ok_or_else(|| {
                let cause = "the file has no growth of sites: the process ended before six readings, or with growth=off";
                Failure::new(name, cause)
            })?;
            let growth = growth.map_err(|error| Failure::new(name, error))?;
            let body = serde_json::to_vec(&growth).map_err(|error| Failure::new(name, error))?;
            (growth, body)
        }
        (None, Some(url)) => {
            let body = http::get(Server::Named, &url, TIMEOUT)?;
            let growth = Growth::parse(&body).map_err(|cause| Failure::new(&url, cause))?;
            (growth, body)
        }
        (None, None) => {
            let cause = format!(
                "{name} is neither a running program, such as localhost:6060, nor a post-mortem file"
            );
            return Err(Failure::new("--growth", cause).with_code(2));
        }
    };
    let to = view.output.as_deref();
    write(to.filter(|path| *path != Path::new("-")), |to| {
        match view.json {
            true => Ok(to.write_all(plain_json(&String::from_utf8_lossy(&body)).as_bytes())?),
            false => put(&mut PlainText(to), &growth, view),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the address of the page of a program.
pub fn url_of(name: &str) -> Option<String> {
    let url = http::base_url(name)?;
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    Some(format!("{scheme}://{authority}{}", growth::PATH))
}

/// Writes the growth as text.
pub(super) fn put(to: &mut dyn Write, growth: &Growth, view: &ViewArguments) -> Result<(), Stop> {
    let (readings, observed) = (growth.readings, time(growth.observed));
    if readings < growth.readings_needed {
        let needed = growth.readings_needed;
        let left = growth.seconds_to_verdicts();
        let left = left.map_or_else(String::new, |left| format!(", in about {}", time(left)));
        writeln!(
            to,
            "{readings} readings in {observed}; verdicts need {needed}{left}"
        )?;
        return Ok(());
    }
    let leaks = growth.sites.iter().filter(|site| site.verdict == "leaking");
    let (leaks, total) = (leaks.count(), growth.total);
    write!(to, "{leaks} of {total} sites leak")?;
    if leaks > 0 {
        write!(
            to,
            ": {} a minute",
            per_minute(growth.bytes_per_second, true)
        )?;
    }
    if let Some(seconds) = growth.seconds_to_limit {
        write!(to, "; the memory limit is reached in {}", time(seconds))?;
    }
    writeln!(to, " ({readings} readings in {observed})")?;
    writeln!(
        to,
        "{:>12} {:>12} {:>10} {:>9} {:>9}  {:<15} site",
        "a minute", "error", "in use", "lifetime", "observed", "verdict"
    )?;
    let most = match view.nodecount.unwrap_or(SITES) {
        0 => usize::MAX,
        most => most,
    };
    for site in growth.sites.iter().take(most) {
        let functions: Vec<&str> = site
            .stack
            .iter()
            .filter(|frame| view.nodecount == Some(0) || !is_of_a_library(&frame.function))
            .map(|frame| &*frame.function)
            .take(FRAMES)
            .collect();
        writeln!(
            to,
            "{:>12} {:>12} {:>10} {:>9} {:>9}  {:<15} {}",
            per_minute(site.bytes_per_second, true),
            per_minute(site.error, false),
            alone(site.bytes as i64, "bytes", false),
            site.lifetime.map_or("no frees".into(), time),
            time(site.window),
            site.verdict,
            functions.join(" < ")
        )?;
    }
    Ok(())
}

/// Returns whether a function is of Rust's standard library.
pub fn is_of_a_library(function: &str) -> bool {
    let path = function.trim_start_matches('<');
    ["alloc::", "core::", "std::"]
        .iter()
        .any(|name| path.starts_with(name))
}

/// Formats a rate as bytes per minute.
pub fn per_minute(bytes_per_second: f64, signed: bool) -> String {
    alone((bytes_per_second * 60.0) as i64, "bytes", signed)
}

/// Formats seconds in the largest unit that leaves at least one.
pub fn time(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0}ms", seconds * 1e3),
        ..120.0 => format!("{seconds:.0}s"),
        ..7200.0 => format!("{:.0}min", seconds / 60.0),
        ..172_800.0 => format!("{:.0}h", seconds / 3600.0),
        _ => format!("{:.0}d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_program() {
        for name in [
            "localhost:6060",
            "http://localhost:6060/",
            "localhost:6060/debug/pprof/heap",
        ] {
            let url = "http://localhost:6060/debug/plimsoll/growth";
            assert_eq!(url_of(name).as_deref(), Some(url), "{name}");
        }
        assert_eq!(url_of("heap.pb.gz"), None);
    }

    #[test]
    fn times_have_the_largest_unit() {
        let all = [0.02, 30.0, 600.0, 86_400.0, 1e7].map(time);
        assert_eq!(all, ["20ms", "30s", "10min", "24h", "116d"]);
    }
}
