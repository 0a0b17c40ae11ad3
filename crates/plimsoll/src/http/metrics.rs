//! What Prometheus reads: `/metrics`.

use super::answer::Answer;
use super::{Request, accept};
use crate::export::prometheus;

/// Where it is.
pub(super) const PATH: &str = "/metrics";

pub(super) fn answer(request: &Request<'_>) -> Answer {
    let format = accept::format(request.accept);
    let page = prometheus::page(format);
    let mut response = Answer::new(200, format.content_type(), page.into_bytes());
    response.headers.push(("Vary", "Accept".into()));
    response
}
