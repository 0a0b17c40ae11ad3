//! All threads and tasks, as JSON.

use plimsoll_server::answer::Answer;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, vars};
use plimsoll_profiles::export;

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/debug/plimsoll/threads",
    is_long: true,
    parameters: Parameters::JSON,
    answer,
};

fn answer(_: &Request<'_>) -> Answer {
    Answer::new(200, vars::JSON, export::threads_page())
}
