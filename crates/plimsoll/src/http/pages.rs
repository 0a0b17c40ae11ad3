//! Which page is where.

use super::{Request, Response, fragmentation, memory, metrics, pprof, query, vars};

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Those that are not under the root.
const OTHERS: [&str; 4] = [fragmentation::PATH, memory::PATH, metrics::PATH, vars::PATH];

pub(super) fn answer(request: &Request<'_>) -> Response {
    let Some(path) = query::path(request.path) else {
        return Response::new(400, TEXT, b"Bad Request\n".into());
    };
    if *path == *pprof::ROOT.trim_end_matches('/') {
        let mut response = Response::new(301, TEXT, Vec::new());
        response.headers.push(("Location", pprof::ROOT.into()));
        return response;
    }
    let profiles = path.strip_prefix(pprof::ROOT);
    if profiles.is_none() && !OTHERS.contains(&&*path) {
        return Response::new(404, TEXT, b"404 page not found\n".into());
    }
    if !matches!(request.method, "GET" | "HEAD") {
        let mut response = Response::new(405, TEXT, b"Method Not Allowed\n".into());
        response.headers.push(("Allow", "GET, HEAD".into()));
        return response;
    }
    match (profiles, &*path) {
        (Some(name), _) => pprof::answer(name, request),
        (None, fragmentation::PATH) => fragmentation::answer(request),
        (None, memory::PATH) => memory::answer(request),
        (None, metrics::PATH) => metrics::answer(request),
        (None, _) => vars::answer(),
    }
}

impl Response {
    pub(super) fn new(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![
            ("X-Content-Type-Options", "nosniff".into()),
            ("Content-Type", content_type.into()),
        ];
        Self {
            status,
            headers,
            body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "/",
            "",
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
        assert_eq!(Request::new("GET", "/debug/%", "").answer().status, 400);
    }
}
