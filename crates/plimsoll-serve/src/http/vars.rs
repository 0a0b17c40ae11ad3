//! Go's `/debug/vars`.

use super::Request;
use plimsoll_server::answer::Answer;

use super::pages::Page;
use super::parameters::Parameters;
use plimsoll_profiles::export::vars;
use plimsoll_stats::stats;

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/vars",
    is_long: false,
    parameters: Parameters {
        formats: &["json"],
        ..Parameters::GOS
    },
    answer,
};

pub(super) const JSON: &str = "application/json; charset=utf-8";

fn answer(_: &Request<'_>) -> Answer {
    let arguments: Vec<String> = std::env::args_os()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let text = vars::write(
        &arguments,
        &stats::mem_stats(),
        &stats::accounts(),
        &stats::declared(),
    );
    Answer::new(200, JSON, text.into_bytes())
}
