//! The pages and their paths.

use plimsoll_server::answer::{Answer, Step, TEXT};
#[cfg(feature = "http")]
use plimsoll_server::pages::Effort;
use plimsoll_server::query;

use super::parameters::Parameters;
use super::pprof::Delta;
use super::{
    Request, browser, fragmentation, growth, history, memory, metrics, pprof, threads, vars,
};

/// A page that is not below [`pprof::ROOT`].
pub(super) struct Page {
    pub(super) path: &'static str,
    /// Whether an answer can take longer than some milliseconds.
    #[cfg_attr(not(feature = "http"), allow(dead_code))]
    pub(super) is_long: bool,
    pub(super) parameters: Parameters,
    pub(super) answer: fn(&Request<'_>) -> Answer,
}

/// All pages that are not below [`pprof::ROOT`].
pub(super) const PAGES: [&Page; 7] = [
    &fragmentation::PAGE,
    &growth::PAGE,
    &history::PAGE,
    &memory::PAGE,
    &metrics::PAGE,
    &threads::PAGE,
    &vars::PAGE,
];

/// The path of the wall-clock profile that scrapers of fgprof request.
const FGPROF: &str = "/debug/fgprof";

/// Returns the name of the profile at a path.
fn profile(path: &str) -> Option<&str> {
    if path == FGPROF {
        return Some("wall");
    }
    path.strip_prefix(pprof::ROOT)
}

fn page(path: &str) -> Option<&'static Page> {
    PAGES.into_iter().find(|page| page.path == path)
}

pub(super) fn answer(request: &Request<'_>) -> Step<Delta> {
    let Some(path) = query::path(request.path) else {
        return Answer::line(400, "Bad Request").into();
    };
    let Some(path) = below(&path, request.prefix) else {
        return not_found().into();
    };
    if let Some((status, root)) = moved(path, request) {
        let answer = Answer::new(status, TEXT, Vec::new());
        return answer.header("Location", root).into();
    }
    let profile = profile(path);
    let page = page(path);
    let asset = browser::find(path);
    if profile.is_none() && page.is_none() && asset.is_none() {
        return not_found().into();
    }
    if !matches!(request.method, "GET" | "HEAD") && !takes_body(request.method, profile) {
        let allowed = match takes_body(POST, profile) {
            true => "GET, HEAD, POST",
            false => "GET, HEAD",
        };
        let answer = Answer::line(405, "Method Not Allowed");
        return answer.header("Allow", allowed).into();
    }
    let checked = |parameters: &Parameters, answer: &dyn Fn() -> Answer| {
        let refused = parameters.check(request.query).err();
        refused.unwrap_or_else(answer).into()
    };
    match (page, asset) {
        (Some(page), _) => checked(&page.parameters, &|| (page.answer)(request)),
        (None, Some(asset)) => checked(&Parameters::GOS, &|| browser::answer(asset)),
        (None, None) => pprof::answer(profile.unwrap_or_default(), request),
    }
}

fn not_found() -> Answer {
    Answer::line(404, "404 page not found")
}

/// Returns the part of a decoded path below the prefix: empty, or with a slash at the beginning.
fn below<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(&*query::path(prefix)?)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Returns the status and the address of the page to which a path leads. The address is relative to
/// the request's path, so that it holds below any prefix, also below one that a proxy removed.
fn moved(path: &str, request: &Request<'_>) -> Option<(u16, String)> {
    // With an escaped slash, the address would be relative to another path than the decoded one.
    let is_escaped =
        request.path.matches('/').count() != query::path(request.path)?.matches('/').count();
    if is_escaped {
        return None;
    }
    // Without the dot, a colon in the name would begin an address with a scheme.
    let inside = |root: &str| {
        let name = request.path.rsplit('/').next().unwrap_or("");
        format!("./{name}/{root}")
    };
    let pprof = pprof::ROOT.trim_start_matches('/');
    // A 302, because browsers keep a 301 for good, and the program may add a page at this path
    // later.
    match path {
        "/" => Some((302, format!("./{pprof}"))),
        "" if !request.prefix.is_empty() => Some((302, inside(pprof))),
        path if path == pprof::ROOT.trim_end_matches('/') => Some((301, inside(""))),
        path if path == browser::ROOT.trim_end_matches('/') => Some((301, inside(""))),
        _ => None,
    }
}

/// The method of a request with a body.
const POST: &str = "POST";

/// Returns whether a page of profiles reads the body of a request by this method.
fn takes_body(method: &str, profile: Option<&str>) -> bool {
    method == POST && profile == Some("symbol")
}

/// Returns whether the answer to a request by this method for this path depends on the body.
#[cfg(feature = "http")]
pub(super) fn reads_body(method: &str, path: &str) -> bool {
    query::path(path).is_some_and(|path| takes_body(method, profile(&path)))
}

/// Returns the work of the answer to a request for that path and query.
#[cfg(feature = "http")]
pub(super) fn effort(path: &str, query: &str) -> Effort {
    let Some(path) = query::path(path) else {
        return Effort::Short;
    };
    match profile(&path) {
        Some("" | "cmdline") => Effort::Short,
        Some("heap") if query::number(query, "gc") > 0 => Effort::Exclusive,
        Some(_) => Effort::Long,
        None if page(&path).is_some_and(|page| page.is_long) => Effort::Long,
        None => Effort::Short,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Response;

    fn all() -> impl Iterator<Item = &'static str> {
        let pages = PAGES.into_iter().map(|page| page.path);
        pages.chain([
            "/debug/pprof/heap",
            "/debug/plimsoll/",
            "/debug/plimsoll/page.js",
        ])
    }

    fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
        let mut headers = response.headers.iter();
        headers
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
    }

    #[test]
    fn only_get_and_head_are_allowed() {
        for path in all() {
            for method in ["POST", "PUT", "DELETE", "get", "", "\u{0}"] {
                let response = Request::new(method, path, "").answer();
                assert_eq!(response.status, 405, "{method} {path}");
                assert_eq!(header(&response, "Allow"), Some("GET, HEAD"));
            }
            // The system's allocator does not report its pages.
            let expected = match path {
                "/debug/plimsoll/fragmentation" => 501,
                // They begin with `start`.
                "/debug/plimsoll/growth" | "/debug/plimsoll/history" => 404,
                _ => 200,
            };
            assert_eq!(
                Request::new("HEAD", path, "").answer().status,
                expected,
                "{path}"
            );
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
            "/debug/plimsoll/page",
            "/debug/plimsoll/page.js/",
            "/debug/plimsoll//page.js",
        ] {
            let response = Request::new("GET", path, "").answer();
            assert_eq!(response.status, 404, "{path}");
        }
        for (path, status, location) in [
            ("/debug/pprof", 301, "./pprof/"),
            ("/debug/ppro%66", 301, "./ppro%66/"),
            ("/debug/plimsoll", 301, "./plimsoll/"),
            ("/", 302, "./debug/pprof/"),
        ] {
            let response = Request::new("GET", path, "seconds=1").answer();
            let found = (response.status, header(&response, "Location"));
            assert_eq!(found, (status, Some(location)), "{path}");
        }
        for path in ["/debug%2Fpprof", "%2F", "%2Fdebug/pprof"] {
            assert_eq!(Request::new("GET", path, "").answer().status, 404, "{path}");
        }
        assert_eq!(Request::new("GET", "/debug/%", "").answer().status, 400);
    }

    #[test]
    fn the_pages_are_below_a_prefix_and_nowhere_else() {
        for prefix in ["/a/b:c", "/a/b:c/", "/a/b%3Ac"] {
            for (path, status, location) in [
                ("/a/b:c", 302, Some("./b:c/debug/pprof/")),
                ("/a/%62:c", 302, Some("./%62:c/debug/pprof/")),
                ("/a/b:c/", 302, Some("./debug/pprof/")),
                ("/a/b:c/debug/pprof", 301, Some("./pprof/")),
                ("/a/b:c/debug/plimsoll", 301, Some("./plimsoll/")),
                ("/a/b:c/debug/pprof/cmdline", 200, None),
                ("/a/b:c/metrics", 200, None),
                ("/a/b:cmetrics", 404, None),
                ("/a/b:cc", 404, None),
                ("/a/", 404, None),
                ("/", 404, None),
                ("", 404, None),
                ("/metrics", 404, None),
                ("//a/b:c", 404, None),
                ("/a%2Fb:c", 404, None),
            ] {
                let response = Request::new("GET", path, "").below(prefix).answer();
                let found = (response.status, header(&response, "Location"));
                assert_eq!(found, (status, location), "{path}");
            }
        }
        let response = Request::new("GET", "/metrics", "").below("/").answer();
        assert_eq!(response.status, 200, "no prefix");
    }
}
