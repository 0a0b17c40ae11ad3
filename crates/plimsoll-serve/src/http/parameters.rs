//! The parameters of pages: each that changes the meaning of an answer is honoured or refused.
//!
//! Go's handlers ignore parameters that they do not know, and its tools may send some. So pages of Go
//! refuse only Plimsoll's parameters that they do not have. Plimsoll's pages refuse all others.

use plimsoll_server::answer::Answer;
use plimsoll_server::query;

/// The parameters that Go does not have, and any page of Plimsoll has.
const OWN: [&str; 6] = ["at", "format", "from", "idle", "peak", "to"];

/// The parameters of a page.
pub(super) struct Parameters {
    /// The names, without those of Go and without `format`.
    pub(super) names: &'static [&'static str],
    /// The values of `format` that the page has.
    pub(super) formats: &'static [&'static str],
    /// Whether Go has the page, too.
    pub(super) is_gos: bool,
}

impl Parameters {
    /// Of a page of Go without parameters of Plimsoll.
    pub(super) const GOS: Self = Self {
        names: &[],
        formats: &[],
        is_gos: true,
    };

    /// Of a page of Plimsoll that is JSON.
    pub(super) const JSON: Self = Self {
        names: &[],
        formats: &["json"],
        is_gos: false,
    };

    /// Checks that the page honours the parameters of a query.
    ///
    /// # Errors
    /// The answer 400 that names the parameter.
    pub(super) fn check(&self, text: &str) -> Result<(), Answer> {
        let mut known = self.names.to_vec();
        if !self.formats.is_empty() {
            known.push("format");
        }
        query::refuse_others(text, &known, |name| !self.is_gos || OWN.contains(&name))
            .map_err(|why| Answer::error(400, &why))?;
        let format = query::first(text, "format");
        if format.is_empty() || self.formats.contains(&&*format) {
            return Ok(());
        }
        Err(wrong("format", &self.formats.join(" or ")))
    }
}

/// Returns a parameter that is 0 or 1; 0 if it is absent.
///
/// # Errors
/// The answer 400 for another value.
pub(super) fn flag(text: &str, name: &str) -> Result<bool, Answer> {
    match &*query::first(text, name) {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(wrong(name, "0 or 1")),
    }
}

fn wrong(name: &str, right: &str) -> Answer {
    let text = format!("invalid value for \"{name}\" - must be {right}");
    Answer::error(400, &text)
}

#[cfg(test)]
mod tests {
    use crate::http::{Request, Response};

    fn get(target: &str) -> Response {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Request::new("GET", path, query).answer()
    }

    #[test]
    fn a_parameter_that_a_page_does_not_have_is_refused_by_name() {
        for (target, names) in [
            ("/debug/pprof/wall?at=1", "\"at\""),
            ("/debug/fgprof?from=1", "\"from\""),
            ("/debug/fgprof?format=folded", "\"format\""),
            ("/debug/pprof/allocs?peak=1", "\"peak\""),
            ("/debug/pprof/goroutine?peak=1", "\"peak\""),
            ("/debug/pprof/heap?format=json", "\"format\""),
            ("/debug/pprof/heap?peak=true", "\"peak\""),
            ("/debug/pprof/block?idle=yes", "\"idle\""),
            ("/debug/pprof/heap?at=1&at=2", "\"at\""),
            ("/debug/pprof/heap?at=%", "\"at\""),
            ("/debug/pprof/heap?debug=1;at=2", "\"at\""),
            ("/debug/pprof/heap?a%74=x", "\"at\""),
            ("/debug/pprof/profile?idle=1", "\"idle\""),
            ("/debug/pprof/?at=1", "\"at\""),
            ("/debug/pprof/cmdline?at=1", "\"at\""),
            ("/debug/pprof/trace?at=1", "\"at\""),
            ("/debug/vars?from=1", "\"from\""),
            ("/metrics?from=1", "\"from\""),
            ("/metrics?format=json", "\"format\""),
            ("/debug/plimsoll/?from=1", "\"from\""),
            ("/debug/plimsoll/memory?form=json", "\"form\""),
            ("/debug/plimsoll/memory?format=xml", "\"format\""),
            ("/debug/plimsoll/memory?seconds=1", "\"seconds\""),
            ("/debug/plimsoll/fragmentation?debug=1", "\"debug\""),
            ("/debug/plimsoll/threads?debug=2", "\"debug\""),
            ("/debug/plimsoll/growth?from=1", "\"from\""),
            ("/debug/plimsoll/history?at=1", "\"at\""),
            ("/debug/plimsoll/history?form=1", "\"form\""),
        ] {
            let response = get(target);
            let text = String::from_utf8(response.body).expect("text");
            assert_eq!(response.status, 400, "{target}: {text}");
            assert!(text.contains(names), "{target}: {text}");
            assert_eq!(text.lines().count(), 1, "{target}: {text}");
        }
    }

    #[test]
    fn parameters_that_exclude_each_other_are_refused() {
        for query in [
            "at=1&from=1",
            "at=1&to=1",
            "at=1&seconds=1",
            "at=1&debug=1",
            "at=1&gc=1",
            "from=1&seconds=1",
            "to=1&debug=2",
        ] {
            let response = get(&format!("/debug/pprof/heap?{query}"));
            assert_eq!(response.status, 400, "{query}");
        }
        assert_eq!(get("/debug/pprof/profile?at=1&seconds=1").status, 400);
    }

    /// The history is off here. The page recorded for 30 seconds.
    #[test]
    fn cpu_samples_of_the_past_are_not_recorded_now() {
        for query in ["at=1", "from=1&to=2", "from=1", "to=1"] {
            let response = get(&format!("/debug/pprof/profile?{query}"));
            assert_eq!(response.status, 404, "{query}");
        }
    }

    /// What Go's tools, scrapers and shared configurations of them send.
    #[test]
    fn parameters_that_go_accepts_are_accepted() {
        for target in [
            "/debug/pprof/heap?debug=0",
            "/debug/pprof/heap?gc=1&debug=1",
            "/debug/pprof/allocs?gc=1",
            "/debug/pprof/goroutine?debug=2",
            "/debug/pprof/block?seconds=&debug=0",
            "/debug/pprof/heap?seconds=1&gc=1",
            "/debug/pprof/heap?unknown=1&_=1700000000",
            "/debug/pprof/heap?debug=1;x=2",
            "/debug/pprof/?debug=1",
            "/debug/pprof/cmdline?seconds=1",
            "/debug/pprof/symbol?0x1+0x2",
            "/debug/vars?x",
            "/metrics?name%5B%5D=go_goroutines",
            "/metrics?format=prometheus",
            "/debug/plimsoll/?utm_source=chat",
            "/debug/plimsoll/page.js?v=2",
            "/debug/plimsoll/memory?format=text",
            "/debug/plimsoll/memory?format=",
            "/debug/plimsoll/threads?format=json",
            "/debug/pprof/heap?peak=0&idle=0",
            "/debug/pprof/heap?peak=1&gc=1",
        ] {
            assert_eq!(get(target).status, 200, "{target}");
        }
    }
}
