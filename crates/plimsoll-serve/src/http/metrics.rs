//! The page `/metrics`, for Prometheus.

use plimsoll_server::answer::Answer;

use super::pages::Page;
use super::parameters::Parameters;
use super::{Request, accept};
use plimsoll_profiles::export::prometheus;

/// The entry in the list of pages.
pub(super) const PAGE: Page = Page {
    path: "/metrics",
    is_long: false,
    parameters: Parameters {
        formats: &["prometheus"],
        ..Parameters::GOS
    },
    answer,
};

fn answer(request: &Request<'_>) -> Answer {
    let format = accept::format(request.headers.accept.as_deref().unwrap_or(""));
    let page = prometheus::page(format);
    let mut response = Answer::new(200, format.content_type(), page.into_bytes());
    response.headers.push(("Vary", "Accept".into()));
    response
}
