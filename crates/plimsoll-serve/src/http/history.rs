//! The history of the process, as JSON.

use plimsoll_server::answer::Answer;
use plimsoll_server::query;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, vars};
use crate::history;
use plimsoll_core::{internal_scope, overhead};

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/plimsoll/history",
    is_long: false,
    parameters: Parameters {
        names: &["from", "to"],
        ..Parameters::JSON
    },
    answer,
};

fn answer(request: &Request<'_>) -> Answer {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let [from, to] = match times(request.query, ["from", "to"]) {
        Ok([from, to]) => [from.unwrap_or(0.0), to.unwrap_or(f64::MAX)],
        Err(answer) => return answer,
    };
    let history =
        history::read_where(|time| (from..=to).contains(&history::as_json::seconds(time)));
    if history.steps.is_empty() {
        return Answer::line(404, OFF);
    }
    let started = plimsoll_profiles::export::prometheus::process_start();
    let text = history::as_json::write(&history, started);
    Answer::new(200, vars::JSON, text.into_bytes())
}

/// The text of an answer while the history is off.
pub(super) const OFF: &str = "the history is off: start Plimsoll, without history=off";

/// Returns the parameters that are times in seconds since 1970; `None` for absent ones.
///
/// # Errors
/// The answer, if one is not a number.
pub(super) fn times<const N: usize>(
    query: &str,
    names: [&str; N],
) -> Result<[Option<f64>; N], Answer> {
    let mut times = [None; N];
    for (time, name) in times.iter_mut().zip(names) {
        let text = query::first(query, name);
        if text.is_empty() {
            continue;
        }
        let seconds = text
            .parse()
            .ok()
            .filter(|seconds: &f64| seconds.is_finite());
        let Some(seconds) = seconds else {
            let message = format!("invalid value for \"{name}\" - must be seconds since 1970");
            return Err(Answer::line(400, &message));
        };
        *time = Some(seconds);
    }
    Ok(times)
}
