//! Where the resident memory went, as text or JSON.

use super::answer::Answer;
use super::pages::TEXT;
use super::{Request, query, vars};
use crate::stats;

/// Where it is.
pub(super) const PATH: &str = "/debug/plimsoll/memory";

pub(super) fn answer(request: &Request<'_>) -> Answer {
    let reconciliation = stats::reconcile();
    if query::first(request.query, "format") == "json" {
        Answer::new(200, vars::JSON, reconciliation.json().into_bytes())
    } else {
        Answer::new(200, TEXT, reconciliation.to_string().into_bytes())
    }
}
