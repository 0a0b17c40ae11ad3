//! The pages under `/debug/pprof/`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_server::answer::{Answer, Body, Step, TEXT, Text};
use plimsoll_server::query;
use plimsoll_symbolize::Detail;

use super::parameters::{self, Parameters};
use super::{Request, history, index, symbol_names};
use plimsoll_profiles::cpu::StartError;
use plimsoll_profiles::export::TextPage;
use plimsoll_profiles::export::profile::{Formatted as _, snapshot_bytes};
use plimsoll_profiles::profile::Readable as _;
use plimsoll_profiles::profile::reading::Reading;
use plimsoll_profiles::profile::{self, Format, Profile, cpu, wall};
use plimsoll_stats::gc;

/// The path of these pages.
pub(super) const ROOT: &str = "/debug/pprof/";

const HTML: &str = "text/html; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// Time limit for the collectors in a request with `gc=1`.
const LONGEST_COLLECTION: Duration = Duration::from_secs(5);

/// The largest value of `seconds`.
const MAX_SECONDS: i64 = 3600;

/// A profile as text, which is formatted while it is sent.
struct LongText(TextPage);

impl Text for LongText {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn chunk(&mut self, bytes: usize) -> Vec<u8> {
        self.0.chunk(bytes)
    }
}

/// The parameters of the pages of profiles, beside those of Go.
const OF_PROFILES: Parameters = Parameters {
    names: &["at", "from", "idle", "to"],
    ..Parameters::GOS
};

const OF_HEAP: Parameters = Parameters {
    names: &["at", "from", "idle", "peak", "to"],
    ..Parameters::GOS
};

const OF_CPU: Parameters = Parameters {
    names: &["at", "from", "to"],
    ..Parameters::GOS
};

const OF_WALL: Parameters = Parameters {
    formats: &["pprof"],
    ..Parameters::GOS
};

/// Answers a request for the page `name` below the root.
pub(super) fn answer(name: &str, request: &Request<'_>) -> Step<Delta> {
    try_answer(name, request).unwrap_or_else(Step::Answer)
}

/// # Errors
/// The answer to a request with a parameter that the page does not have.
fn try_answer(name: &str, request: &Request<'_>) -> Result<Step<Delta>, Answer> {
    let Request {
        query, cancelled, ..
    } = *request;
    let profile = profile::lookup(name);
    let parameters = match (name, &profile) {
        ("profile", _) => OF_CPU,
        ("wall", _) => OF_WALL,
        ("heap", _) => OF_HEAP,
        (_, Some(_)) => OF_PROFILES,
        (_, None) => Parameters::GOS,
    };
    // For other names, the status is 404, whatever the parameters are. Those of `symbol` are addresses.
    let is_page = matches!(name, "" | "cmdline" | "trace" | "wall") || profile.is_some();
    if is_page {
        parameters.check(query)?;
    }
    let answer = match name {
        "" => Answer::new(200, HTML, index::page().into_bytes()),
        "cmdline" => Answer::new(200, TEXT, command_line()),
        "symbol" => {
            let addresses = match request.method {
                "POST" => &String::from_utf8_lossy(request.body),
                _ => query,
            };
            Answer::new(200, TEXT, symbol_names::answer(addresses).into_bytes())
        }
        "profile" => match profile.map(|profile| kept(&profile, query)).transpose()? {
            Some(Some(answer)) => answer,
            _ => return Ok(cpu_page(query)),
        },
        "wall" => return Ok(wall_page(query)),
        "trace" => Answer::error(501, "execution traces are not supported"),
        _ => match profile {
            Some(profile) => return profile_page(profile, query, cancelled),
            None => Answer::error(404, "Unknown profile"),
        },
    };
    Ok(answer.into())
}

/// Returns a file, with the name under which a browser saves it.
fn attachment(name: &str, body: Vec<u8>) -> Answer {
    let disposition = format!("attachment; filename=\"{name}\"");
    Answer::new(200, BINARY, body).header("Content-Disposition", disposition)
}

fn profile_page(
    profile: Profile,
    query: &str,
    cancelled: &dyn Fn() -> bool,
) -> Result<Step<Delta>, Answer> {
    let seconds = query::first(query, "seconds");
    let debug = query::number(query, "debug");
    let collects = profile.name() == "heap" && query::number(query, "gc") > 0;
    let profile = match parameters::flag(query, "idle")? {
        false => profile,
        true => profile.with_idle(),
    };
    let profile = match profile::lookup("peak") {
        Some(peak) if parameters::flag(query, "peak")? => peak,
        _ => profile,
    };
    if let Some(answer) = kept(&profile, query)? {
        return Ok(answer.into());
    }
    if !seconds.is_empty() && profile.name() == "peak" {
        let message = "seconds and a peak, which covers a single instant, are incompatible";
        return Err(Answer::error(400, message));
    }
    if !seconds.is_empty() {
        return Ok(delta_page(profile, &seconds, debug));
    }
    if collects {
        gc::collect_unless(LONGEST_COLLECTION, cancelled);
    }
    if debug <= 0 {
        let bytes = profile.bytes(Format::Pprof, Detail::Full);
        return Ok(attachment(profile.name(), bytes).into());
    }
    let text = Body::Text(Box::new(LongText(profile.page(debug > 1))));
    Ok(Answer::new(200, TEXT, text).into())
}

/// Returns a profile from the history, if the parameters name a time.
///
/// # Errors
/// The answer, if a time is not a number, or another parameter cannot be honoured with it.
fn kept(profile: &Profile, query: &str) -> Result<Option<Answer>, Answer> {
    let [at, from, to] = history::times(query, ["at", "from", "to"])?;
    if [at, from, to].iter().all(Option::is_none) {
        return Ok(None);
    }
    let numbers = ["debug", "gc"].map(|name| query::number(query, name));
    let other = match () {
        () if at.is_some() && (from.is_some() || to.is_some()) => Some("at, and from or to,"),
        () if !query::first(query, "seconds").is_empty() => Some("seconds and a time in the past"),
        () if numbers[0] > 0 => Some("debug and a time in the past"),
        () if numbers[1] > 0 => Some("gc and a time in the past"),
        () => None,
    };
    if let Some(other) = other {
        return Err(Answer::error(400, &format!("{other} are incompatible")));
    }
    let time = |seconds: f64| {
        let since = Duration::try_from_secs_f64(seconds.max(0.0));
        since.ok().and_then(|since| UNIX_EPOCH.checked_add(since))
    };
    let now = SystemTime::now();
    let snapshot = match at {
        Some(at) => time(at).and_then(|at| crate::history::profile_at(profile, at)),
        None => {
            let from = from.map_or(Some(UNIX_EPOCH), time);
            let times = from.zip(to.map_or(Some(now), time));
            times.and_then(|(from, to)| crate::history::profile_between(profile, from, to))
        }
    };
    Ok(Some(match snapshot {
        Some(snapshot) => attachment(profile.name(), snapshot_bytes(&snapshot)),
        None => Answer::error(
            404,
            "the history has no reading of this profile, or not two, for that time",
        ),
    }))
}

/// The first half of an answer that covers some seconds.
pub(super) enum Delta {
    /// A profile, and its earlier state.
    Difference(Profile, Box<Reading>),
    /// A CPU profile in progress, which ends when this is dropped.
    Cpu(Box<cpu::Recording>),
    /// A wall-clock profile in progress, which ends when this is dropped.
    Wall(wall::Recording),
}

/// The seconds of a recording if the parameter has no positive number: Go's.
const RECORDED_SECONDS: i64 = 30;

/// Returns the duration of a recording.
///
/// # Errors
/// The answer, if it is too long.
fn recorded_time(query: &str) -> Result<Duration, Answer> {
    let seconds = query::integer(&query::first(query, "seconds"));
    match seconds.filter(|&seconds| seconds > 0) {
        Some(seconds) if seconds > MAX_SECONDS => Err(too_long()),
        seconds => Ok(Duration::from_secs(
            seconds.unwrap_or(RECORDED_SECONDS) as u64
        )),
    }
}

/// Begins a wall-clock profile.
fn wall_page(query: &str) -> Step<Delta> {
    let time = match recorded_time(query) {
        Ok(time) => time,
        Err(answer) => return answer.into(),
    };
    match wall::Recording::begin() {
        Ok(recording) => Step::Wait(time, Delta::Wall(recording)),
        Err(reason) => {
            let message = format!("Could not enable wall-clock profiling: {reason}");
            Answer::error(500, &message).into()
        }
    }
}

/// Begins a CPU profile.
fn cpu_page(query: &str) -> Step<Delta> {
    let time = match recorded_time(query) {
        Ok(time) => time,
        Err(answer) => return answer.into(),
    };
    match cpu::Recording::begin(false) {
        Ok(recording) => Step::Wait(time, Delta::Cpu(Box::new(recording))),
        Err(reason @ StartError::Unsupported) => Answer::error(501, &reason.to_string()).into(),
        Err(reason) => {
            let message = format!("Could not enable CPU profiling: {reason}");
            Answer::error(500, &message).into()
        }
    }
}

fn too_long() -> Answer {
    let message = format!("invalid value for \"seconds\" - must be at most {MAX_SECONDS}");
    Answer::error(400, &message)
}

/// Begins a difference of a profile over some seconds.
fn delta_page(profile: Profile, seconds: &str, debug: i64) -> Step<Delta> {
    let Some(seconds) = query::integer(seconds).filter(|&seconds| seconds > 0) else {
        let message = "invalid value for \"seconds\" - must be a positive integer";
        return Answer::error(400, message).into();
    };
    if seconds > MAX_SECONDS {
        return too_long().into();
    }
    if debug != 0 {
        return Answer::error(400, "seconds and debug params are incompatible").into();
    }
    let earlier = profile.read();
    Step::Wait(
        Duration::from_secs(seconds as u64),
        Delta::Difference(profile, Box::new(earlier)),
    )
}

impl Delta {
    /// Returns the difference up to now.
    pub(super) fn finish(self) -> Answer {
        match self {
            Self::Difference(profile, earlier) => attachment(
                &format!("{}-delta", profile.name()),
                profile.bytes_since(&earlier),
            ),
            Self::Cpu(recording) => attachment("profile", recording.bytes()),
            Self::Wall(recording) => attachment("wall", recording.bytes()),
        }
    }
}

/// Returns the arguments, separated by zero bytes.
fn command_line() -> Vec<u8> {
    let arguments: Vec<_> = std::env::args_os().collect();
    arguments
        .iter()
        .map(|argument| argument.as_encoded_bytes())
        .collect::<Vec<_>>()
        .join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Response;

    fn get(path: &str, query: &str) -> Response {
        Request::new("GET", path, query).answer()
    }

    fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        response
            .headers
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }

    fn body(response: &Response) -> &str {
        std::str::from_utf8(&response.body).expect("text")
    }

    /// Go's table: path, status, content type, disposition.
    #[test]
    fn every_page_has_gos_status_and_headers() {
        for (page, status, content_type, disposition) in [
            ("", 200, HTML, None),
            ("heap", 200, BINARY, Some("attachment; filename=\"heap\"")),
            (
                "heap?debug=0",
                200,
                BINARY,
                Some("attachment; filename=\"heap\""),
            ),
            ("heap?debug=1", 200, TEXT, None),
            ("heap?debug=7", 200, TEXT, None),
            (
                "heap?debug=-1",
                200,
                BINARY,
                Some("attachment; filename=\"heap\""),
            ),
            (
                "heap?debug=nonsense",
                200,
                BINARY,
                Some("attachment; filename=\"heap\""),
            ),
            (
                "heap?gc=1",
                200,
                BINARY,
                Some("attachment; filename=\"heap\""),
            ),
            (
                "heap?seconds=",
                200,
                BINARY,
                Some("attachment; filename=\"heap\""),
            ),
            (
                "heap?seconds=1",
                200,
                BINARY,
                Some("attachment; filename=\"heap-delta\""),
            ),
            (
                "allocs",
                200,
                BINARY,
                Some("attachment; filename=\"allocs\""),
            ),
            (
                "allocs?seconds=1",
                200,
                BINARY,
                Some("attachment; filename=\"allocs-delta\""),
            ),
            (
                "goroutine",
                200,
                BINARY,
                Some("attachment; filename=\"goroutine\""),
            ),
            ("goroutine?debug=1", 200, TEXT, None),
            ("goroutine?debug=2", 200, TEXT, None),
            (
                "goroutine?seconds=1",
                200,
                BINARY,
                Some("attachment; filename=\"goroutine-delta\""),
            ),
            ("cmdline", 200, TEXT, None),
            ("symbol", 200, TEXT, None),
            ("no-such", 404, TEXT, None),
            ("no-such?seconds=x&debug=1", 404, TEXT, None),
            ("<script>alert(1)</script>", 404, TEXT, None),
            ("heap/", 404, TEXT, None),
            ("../heap", 404, TEXT, None),
            (
                "profile?seconds=1",
                200,
                BINARY,
                Some("attachment; filename=\"profile\""),
            ),
            ("trace?seconds=1", 501, TEXT, None),
        ] {
            let (path, query) = page.split_once('?').unwrap_or((page, ""));
            let response = get(&format!("{ROOT}{path}"), query);
            assert_eq!(response.status, status, "{page}");
            assert_eq!(
                header(&response, "Content-Type"),
                Some(content_type),
                "{page}"
            );
            assert_eq!(
                header(&response, "Content-Disposition"),
                disposition,
                "{page}"
            );
            assert_eq!(
                header(&response, "X-Content-Type-Options"),
                Some("nosniff"),
                "{page}"
            );
            assert_eq!(
                header(&response, "X-Go-Pprof").is_some(),
                status >= 400,
                "{page}"
            );
        }
    }

    /// `debug=2` lists each thread; other profiles have no such list.
    #[test]
    fn the_second_text_is_the_dump_of_threads_only() {
        let text = |page: &str, debug: &str| {
            let response = get(&format!("{ROOT}{page}"), debug);
            String::from_utf8(response.body).expect("text")
        };
        assert!(text("goroutine", "debug=1").starts_with("goroutine profile: total "));
        for debug in ["debug=2", "debug=3"] {
            let dump = text("goroutine", debug);
            assert!(
                dump.starts_with("goroutine ") && dump.contains("]:\n"),
                "{dump}"
            );
            assert!(text("heap", debug).starts_with("heap profile: "));
        }
    }

    #[test]
    fn errors_come_in_gos_order_and_words() {
        let not_positive = "invalid value for \"seconds\" - must be a positive integer\n";
        for seconds in [
            "0",
            "-1",
            "abc",
            "1.5",
            "99999999999999999999",
            "%31x",
            "+1",
        ] {
            for debug in ["", "&debug=1"] {
                let response = get("/debug/pprof/heap", &format!("seconds={seconds}{debug}"));
                assert_eq!(
                    (response.status, body(&response)),
                    (400, not_positive),
                    "{seconds}{debug}"
                );
            }
        }
        let response = get("/debug/pprof/heap", "seconds=1&debug=1");
        assert_eq!(
            (response.status, body(&response)),
            (400, "seconds and debug params are incompatible\n")
        );
        assert_eq!(body(&get("/debug/pprof/none", "")), "Unknown profile\n");
    }

    #[test]
    fn seconds_are_at_most_an_hour() {
        for seconds in ["3601", "99999", "9223372036854775807"] {
            for profile in ["heap", "allocs", "block"] {
                let path = format!("{ROOT}{profile}");
                let response = get(&path, &format!("seconds={seconds}"));
                assert_eq!(
                    (response.status, body(&response)),
                    (
                        400,
                        "invalid value for \"seconds\" - must be at most 3600\n"
                    ),
                    "{seconds}"
                );
            }
        }
    }

    #[test]
    fn a_delta_ends_when_it_is_cancelled() {
        let response = Request::new("GET", "/debug/pprof/heap", "seconds=3600")
            .cancelled(&|| true)
            .answer();
        assert_eq!(response.status, 500);
    }

    #[test]
    fn the_command_line_is_separated_by_zeros() {
        let first = std::env::args().next().unwrap();
        assert!(command_line().starts_with(first.as_bytes()));
    }
}
