//! The growth of allocation sites, as JSON.

use plimsoll_server::answer::Answer;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, vars};
use crate::history;
use plimsoll_core::{internal_heap, internal_scope, overhead};

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/plimsoll/growth",
    is_long: true,
    parameters: Parameters::JSON,
    answer,
};

fn answer(_: &Request<'_>) -> Answer {
    let (_own, _time) = (internal_scope::scope(), overhead::measure());
    let growth = history::growth();
    if growth.readings == 0 {
        return Answer::line(404, OFF);
    }
    let text = history::growth::as_json::write(&growth);
    drop(growth);
    internal_heap::trim();
    Answer::new(200, vars::JSON, text.into_bytes())
}

/// The text of an answer without readings.
const OFF: &str = "growth is not observed: start Plimsoll, without growth=off or history=off";
