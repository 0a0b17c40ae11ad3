//! The free space in the allocator's pages, as text or JSON.

use plimsoll_server::answer::{Answer, TEXT};
use plimsoll_server::query;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, vars};
use plimsoll_profiles::export;
use plimsoll_stats::stats;

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/plimsoll/fragmentation",
    is_long: true,
    parameters: Parameters {
        formats: &["json", "text"],
        ..Parameters::JSON
    },
    answer,
};

fn answer(request: &Request<'_>) -> Answer {
    let answered = if query::first(request.query, "format") == "json" {
        let reading = stats::fragmentation();
        reading.map(|reading| Answer::new(200, vars::JSON, reading.json().into_bytes()))
    } else {
        let page = export::fragmentation_page();
        page.map(|page| Answer::new(200, TEXT, page))
    };
    // The same status as for an unsupported profile.
    answered.unwrap_or_else(|unavailable| Answer::line(501, &unavailable.to_string()))
}
