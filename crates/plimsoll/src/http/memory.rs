//! Where the resident memory went, as text or JSON.

use super::pages::TEXT;
use super::{Request, Response, query, vars};
use crate::stats;

/// Where it is.
pub(super) const PATH: &str = "/debug/plimsoll/memory";

pub(super) fn answer(request: &Request<'_>) -> Response {
    let reconciliation = stats::reconcile();
    if query::first(request.query, "format") == "json" {
        Response::new(200, vars::JSON, reconciliation.json().into_bytes())
    } else {
        Response::new(200, TEXT, reconciliation.to_string().into_bytes())
    }
}
