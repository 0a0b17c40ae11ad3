//! Which page is where.

use super::answer::{Answer, Step};
use super::{Request, fragmentation, memory, metrics, pprof, query, vars};

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Those that are not under the root.
const OTHERS: [&str; 4] = [fragmentation::PATH, memory::PATH, metrics::PATH, vars::PATH];

pub(super) fn answer(request: &Request<'_>) -> Step {
    let Some(path) = query::path(request.path) else {
        return Answer::new(400, TEXT, b"Bad Request\n".into()).into();
    };
    let moved = match &*path {
        // The program may have a page of its own there one day: browsers keep a 301 for good.
        "/" => Some(302),
        path if path == pprof::ROOT.trim_end_matches('/') => Some(301),
        _ => None,
    };
    if let Some(status) = moved {
        let mut answer = Answer::new(status, TEXT, Vec::new());
        answer.headers.push(("Location", pprof::ROOT.into()));
        return answer.into();
    }
    let profiles = path.strip_prefix(pprof::ROOT);
    if profiles.is_none() && !OTHERS.contains(&&*path) {
        return Answer::new(404, TEXT, b"404 page not found\n".into()).into();
    }
    if !matches!(request.method, "GET" | "HEAD") {
        let mut answer = Answer::new(405, TEXT, b"Method Not Allowed\n".into());
        answer.headers.push(("Allow", "GET, HEAD".into()));
        return answer.into();
    }
    match (profiles, &*path) {
        (Some(name), _) => pprof::answer(name, request),
        (None, fragmentation::PATH) => fragmentation::answer(request).into(),
        (None, memory::PATH) => memory::answer(request).into(),
        (None, metrics::PATH) => metrics::answer(request).into(),
        (None, _) => vars::answer().into(),
    }
}

/// How much work an answer is, which decides how many of the kind a server computes at once.
#[cfg(feature = "http")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// Numbers, lists and errors: some milliseconds, whatever the program does.
    Short,
    /// Profiles, names for addresses, the allocator's pages: up to seconds.
    Long,
    /// Runs the program's collectors first.
    Collect,
    /// The second half of an answer with `seconds`.
    Difference,
}

/// How much work the answer to a request for that path and query is.
#[cfg(feature = "http")]
pub(super) fn effort(path: &str, query: &str) -> Effort {
    let Some(path) = query::path(path) else {
        return Effort::Short;
    };
    match path.strip_prefix(pprof::ROOT) {
        Some("" | "cmdline") => Effort::Short,
        Some("heap") if query::number(query, "gc") > 0 => Effort::Collect,
        Some(_) => Effort::Long,
        None if matches!(&*path, fragmentation::PATH | memory::PATH) => Effort::Long,
        None => Effort::Short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Response;

    const ALL: [&str; 4] = [
        "/debug/pprof/heap",
        "/debug/plimsoll/memory",
        "/debug/vars",
        "/metrics",
    ];

    fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        let mut headers = response.headers.iter();
        headers
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }

    #[test]
    fn only_get_and_head_are_allowed() {
        for path in ALL {
            for method in ["POST", "PUT", "DELETE", "get", "", "\u{0}"] {
                let response = Request::new(method, path, "").answer();
                assert_eq!(response.status, 405, "{method} {path}");
                assert_eq!(header(&response, "Allow"), Some("GET, HEAD"));
            }
            assert_eq!(Request::new("HEAD", path, "").answer().status, 200);
        }
    }

    #[test]
    fn paths_elsewhere_are_not_found_and_the_root_is_redirected() {
        for path in [
            "",
            "//",
            "/debug/pprofx",
            "/debug/",
            "debug/pprof/",
            "/DEBUG/PPROF/",
            "/metrics/",
            "/metricsx",
            "metrics",
            "/debug/vars/",
            "/debug/metrics",
        ] {
            let response = Request::new("GET", path, "").answer();
            assert_eq!(response.status, 404, "{path}");
        }
        let response = Request::new("GET", "/debug/pprof", "").answer();
        assert_eq!(
            (response.status, header(&response, "Location")),
            (301, Some(pprof::ROOT))
        );
        let response = Request::new("GET", "/", "seconds=1").answer();
        assert_eq!(
            (response.status, header(&response, "Location")),
            (302, Some(pprof::ROOT))
        );
        assert_eq!(Request::new("GET", "/debug/%", "").answer().status, 400);
    }
}
