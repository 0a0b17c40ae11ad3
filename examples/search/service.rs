//! The HTTP service: routes, parameters and responses.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use plimsoll::task::TrackExt;
use serde::{Deserialize, Serialize};

use crate::index::{Found, Hit};
use crate::latency::Latencies;
use crate::store::Store;
use crate::summary::counted;
use crate::words::terms_of;

const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 100;
const MAX_QUERY_BYTES: usize = 1024;

/// Statistics of served requests.
pub struct Traffic {
    /// Times from a request's head to the response's head, so without the network.
    pub latencies: Latencies,
    /// The number of responses with a 4xx status.
    pub refused: AtomicU64,
    /// The number of responses with a 5xx status.
    pub failed: AtomicU64,
    /// The number of bytes that each request leaks.
    leak: usize,
}

impl Traffic {
    pub fn new(leak: usize) -> Self {
        Self {
            latencies: Latencies::new(),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            leak,
        }
    }
}

const ROUTES: [&str; 4] = ["/", "/search", "/popular", "/healthz"];

pub fn router(store: Arc<Store>, traffic: Arc<Traffic>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/search", get(search))
        .route("/popular", get(popular))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async {
            refusal(
                StatusCode::NOT_FOUND,
                &"there is only /, /search, /popular and /healthz",
            )
        })
        .with_state(store)
        .layer(middleware::from_fn_with_state(traffic, measure))
}

async fn measure(State(traffic): State<Arc<Traffic>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let route = route(request.uri().path());
    let answer = next.run(request).tracked_as("request");
    let response = answer.label("route", route).await;
    traffic.latencies.record(start.elapsed());
    if traffic.leak > 0 {
        keep_forever(traffic.leak);
    }
    if response.status().is_client_error() {
        traffic.refused.fetch_add(1, Relaxed);
    } else if response.status().is_server_error() {
        traffic.failed.fetch_add(1, Relaxed);
    }
    response
}

/// Returns the value of the label `route`. A path that a client made up is none: labels are kept.
fn route(path: &str) -> &'static str {
    ROUTES
        .into_iter()
        .find(|route| *route == path)
        .unwrap_or("other")
}

/// Leaks memory. A defect made on purpose, which the profiles show.
#[inline(never)]
fn keep_forever(bytes: usize) {
    std::hint::black_box(vec![1_u8; bytes].leak());
}

/// The parameters of a request, unparsed. Unknown ones are ignored.
#[derive(Deserialize)]
struct Parameters {
    q: Option<String>,
    limit: Option<String>,
}

/// The parsed parameters.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    query: String,
    terms: Vec<String>,
    limit: usize,
}

impl TryFrom<Parameters> for Wanted {
    type Error = BadRequest;

    fn try_from(parameters: Parameters) -> Result<Self, BadRequest> {
        let limit = match parameters.limit {
            None => DEFAULT_LIMIT,
            Some(text) => match text.parse() {
                Ok(limit @ 1..=MAX_LIMIT) => limit,
                _ => return Err(BadRequest::Limit(text)),
            },
        };
        let query = parameters.q.unwrap_or_default();
        if query.len() > MAX_QUERY_BYTES {
            return Err(BadRequest::LongQuery(query.len()));
        }
        let terms = terms_of(&query);
        if terms.is_empty() {
            return Err(BadRequest::NoTerm);
        }
        Ok(Self {
            query,
            terms,
            limit,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum BadRequest {
    NoTerm,
    LongQuery(usize),
    Limit(String),
    Parameters(String),
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTerm => write!(f, "q has no word to search for"),
            Self::LongQuery(bytes) => write!(
                f,
                "q has {bytes} bytes, at most {MAX_QUERY_BYTES} are taken"
            ),
            Self::Limit(limit) => {
                let shown: String = limit.chars().take(20).collect();
                write!(f, "limit {shown:?} is not a number from 1 to {MAX_LIMIT}")
            }
            Self::Parameters(cause) => write!(f, "the parameters cannot be read: {cause}"),
        }
    }
}

fn wanted(parameters: Result<Query<Parameters>, QueryRejection>) -> Result<Wanted, BadRequest> {
    match parameters {
        Ok(Query(parameters)) => parameters.try_into(),
        Err(rejection) => Err(BadRequest::Parameters(rejection.body_text())),
    }
}

/// The response of `/search`.
#[derive(Serialize)]
struct Answer<'a> {
    query: &'a str,
    /// The number of documents that match.
    total: usize,
    /// The duration of the search, in milliseconds with three decimals.
    millis: f64,
    results: &'a [Hit],
}

async fn search(
    State(store): State<Arc<Store>>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let wanted = match wanted(parameters) {
        Ok(wanted) => wanted,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error),
    };
    store.popular.count(&wanted.terms);
    let start = Instant::now();
    let found = store.current().search(wanted.terms, wanted.limit);
    let millis = start.elapsed().as_micros() as f64 / 1e3;
    let answer = Answer {
        query: &wanted.query,
        total: found.total,
        millis,
        results: &found.results,
    };
    Json(answer).into_response()
}

async fn popular(State(store): State<Arc<Store>>) -> Response {
    Json(store.popular.most(DEFAULT_LIMIT)).into_response()
}

fn refusal(status: StatusCode, error: &dyn fmt::Display) -> Response {
    #[derive(Serialize)]
    struct Refusal {
        error: String,
    }
    (
        status,
        Json(Refusal {
            error: error.to_string(),
        }),
    )
        .into_response()
}

/// Returns the form, with the results if there is a query.
async fn page(
    State(store): State<Arc<Store>>,
    parameters: Result<Query<Parameters>, QueryRejection>,
) -> Response {
    let query = parameters
        .as_ref()
        .ok()
        .and_then(|Query(parameters)| parameters.q.clone())
        .unwrap_or_default();
    let asked = !matches!(
        &parameters,
        Ok(Query(Parameters {
            q: None,
            limit: None
        }))
    );
    let snapshot = store.current();
    let (status, body) = match wanted(parameters) {
        _ if !asked => {
            let files = counted(snapshot.index.documents().len(), "file");
            let terms = counted(snapshot.index.term_count(), "term");
            (StatusCode::OK, format!("<p>{files}, {terms}</p>"))
        }
        Ok(wanted) => (
            StatusCode::OK,
            list(&snapshot.search(wanted.terms, wanted.limit)),
        ),
        Err(error) => (
            StatusCode::BAD_REQUEST,
            format!("<p>{}</p>", Escaped(&error.to_string())),
        ),
    };
    let query = Escaped(&query);
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Search</title>\n\
         <form action=\"/\"><input name=\"q\" value=\"{query}\" maxlength=\"{MAX_QUERY_BYTES}\" autofocus> \
         <button>Search</button></form>\n{body}\n</html>\n"
    );
    // The page loads and runs nothing, even if text passes the escaping.
    let policy = (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; form-action 'self'",
    );
    (status, [policy], Html(html)).into_response()
}

fn list(found: &Found) -> String {
    let mut html = format!("<p>{}</p>\n<ol>\n", counted(found.total, "file"));
    for hit in &found.results {
        let (path, snippet) = (Escaped(&hit.path), Escaped(&hit.snippet));
        html += &format!("<li>{path}:{}<pre>{snippet}</pre></li>\n", hit.line);
    }
    html + "</ol>"
}

/// A text as the content of an HTML element or of a quoted attribute.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(q: Option<&str>, limit: Option<&str>) -> Result<Wanted, BadRequest> {
        Parameters {
            q: q.map(str::to_owned),
            limit: limit.map(str::to_owned),
        }
        .try_into()
    }

    #[test]
    fn a_query_without_a_word_is_refused() {
        for query in [None, Some(""), Some("  "), Some("?!")] {
            assert_eq!(wanted(query, None), Err(BadRequest::NoTerm), "{query:?}");
        }
    }

    #[test]
    fn a_query_is_limited_in_length() {
        assert!(wanted(Some(&"é".repeat(512)), None).is_ok());
        assert_eq!(
            wanted(Some(&"x".repeat(1025)), None),
            Err(BadRequest::LongQuery(1025))
        );
    }

    #[test]
    fn limits_are_1_to_100() {
        assert_eq!(wanted(Some("q"), None).unwrap().limit, DEFAULT_LIMIT);
        for (text, limit) in [("1", 1), ("100", 100)] {
            assert_eq!(wanted(Some("q"), Some(text)).unwrap().limit, limit);
        }
        for text in [
            "",
            "0",
            "101",
            "-1",
            "ten",
            "1.5",
            "99999999999999999999999",
        ] {
            let error = wanted(Some("q"), Some(text)).unwrap_err();
            assert_eq!(error, BadRequest::Limit(text.to_owned()));
            assert!(error.to_string().len() < 100, "{error}");
        }
    }

    #[test]
    fn html_has_nothing_left_that_html_would_take() {
        let escaped = |text| Escaped(text).to_string();
        assert_eq!(
            escaped("<a href='x' id=\"y\">&amp;"),
            "&lt;a href=&#39;x&#39; id=&quot;y&quot;&gt;&amp;amp;"
        );
        assert_eq!(escaped("größe"), "größe");
        assert_eq!(escaped(""), "");
    }
}
