//! What the allocator's pages have room for beyond the program's blocks, as text or JSON.

use super::answer::Answer;
use super::pages::TEXT;
use super::{Request, query, vars};
use crate::{profile, stats};

/// Where it is.
pub(super) const PATH: &str = "/debug/plimsoll/fragmentation";

pub(super) fn answer(request: &Request<'_>) -> Answer {
    let answered = if query::first(request.query, "format") == "json" {
        let told = stats::fragmentation();
        told.map(|told| Answer::new(200, vars::JSON, told.json().into_bytes()))
    } else {
        let page = profile::fragmentation::page();
        page.map(|page| Answer::new(200, TEXT, page))
    };
    // As a profile that there is not.
    answered.unwrap_or_else(|untold| Answer::new(501, TEXT, format!("{untold}\n").into_bytes()))
}
