//! The page that Prometheus reads: the exact formats, and numbers equal to those that the program
//! reads from Plimsoll.

#[cfg(feature = "http")]
#[path = "prometheus/collectors.rs"]
mod collectors;
#[path = "prometheus/forks.rs"]
mod forks;
#[path = "prometheus/numbers.rs"]
mod numbers;
#[path = "prometheus/reader.rs"]
mod reader;
#[cfg(feature = "http")]
#[path = "prometheus/served.rs"]
mod served;

use exposition::{Format, Page};
use plimsoll::http::{Request, Response};
use plimsoll_testkit::exposition;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const BOTH: [(Format, &str, &str); 2] = [
    (Format::Text, "", TEXT),
    (
        Format::OpenMetrics,
        "application/openmetrics-text",
        OPEN_METRICS,
    ),
];

fn answer(format: Format) -> Response {
    let (_, accept, _) = BOTH[(format == Format::OpenMetrics) as usize];
    Request::new("GET", "/metrics", "").accept(accept).answer()
}

/// Parses the answered page strictly.
fn read(response: Response, format: Format) -> Page {
    let (_, _, content_type) = BOTH[(format == Format::OpenMetrics) as usize];
    assert_eq!(response.status, 200);
    let headers = response.headers;
    assert!(
        headers.contains(&("Content-Type", content_type.into())),
        "{headers:?}"
    );
    let text = String::from_utf8(response.body).expect("text");
    exposition::parse(&text, format).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn page(format: Format) -> Page {
    read(answer(format), format)
}
