//! The distribution of the resident memory, as text or JSON.

use plimsoll_server::answer::{Answer, TEXT};
use plimsoll_server::query;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, vars};
use plimsoll_stats::stats;

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/plimsoll/memory",
    is_long: true,
    parameters: Parameters {
        formats: &["json", "text"],
        ..Parameters::JSON
    },
    answer,
};

fn answer(request: &Request<'_>) -> Answer {
    let reconciliation = stats::reconcile();
    if query::first(request.query, "format") == "json" {
        Answer::new(200, vars::JSON, reconciliation.json().into_bytes())
    } else {
        Answer::new(200, TEXT, reconciliation.to_string().into_bytes())
    }
}
