//! The page over real connections.

use plimsoll::http::{Server, serve};

use crate::prometheus::{BOTH, OPEN_METRICS, TEXT};
use plimsoll_testkit::client::{Answer, exchange, get, request};
use plimsoll_testkit::exposition::{self, Format};

fn server() -> Server {
    serve("127.0.0.1:0").expect("a port is free")
}

fn asked(server: &Server, headers: &str) -> Answer {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    exchange(server.address(), request.as_bytes()).expect("an answer")
}

#[test]
fn the_client_gets_the_accepted_format() {
    let server = server();
    for (headers, content_type) in [
        ("", TEXT),
        ("Accept: */*\r\n", TEXT),
        ("Accept: image/png\r\n", TEXT),
        ("Accept: \r\n", TEXT),
        ("Accept: \u{e9}\t,;q=\r\n", TEXT),
        ("Accept: application/openmetrics-text;q=0\r\n", TEXT),
        (
            "accept: application/openmetrics-text; version=1.0.0\r\n",
            OPEN_METRICS,
        ),
        (
            "ACCEPT: text/plain;q=0.5\r\nAccept: application/openmetrics-text\r\n",
            OPEN_METRICS,
        ),
        (
            "Accept: text/plain\r\nAccept: application/openmetrics-text;q=0.5\r\n",
            TEXT,
        ),
        ("X-Accept: application/openmetrics-text\r\n", TEXT),
    ] {
        let answer = asked(&server, headers);
        assert_eq!(answer.status, 200, "{headers}");
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{headers}"
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("vary"), Some("Accept"));
        let format = match content_type {
            TEXT => Format::Text,
            _ => Format::OpenMetrics,
        };
        let read = exposition::parse(answer.text(), format);
        read.unwrap_or_else(|error| panic!("{headers}: {error}"));
    }
}

#[test]
fn methods_and_paths_are_those_of_the_other_pages() {
    let server = server();
    let address = server.address();
    for path in ["/metrics", "/debug/vars"] {
        for method in ["POST", "PUT", "DELETE", "get"] {
            let answer = request(address, method, path);
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some("GET, HEAD"))
            );
        }
        let head = request(address, "HEAD", path);
        assert_eq!((head.status, head.body.len()), (200, 0));
        let length = head.header("content-length").expect("a length");
        assert!(length.parse::<usize>().unwrap() > 1000, "{length}");
        assert_eq!(get(address, &format!("{path}?debug=1")).status, 200);
        for wrong in ["/", "/x", "x"] {
            assert_eq!(get(address, &format!("{path}{wrong}")).status, 404);
        }
    }
    let answer = get(address, "/debug/v%61rs");
    assert_eq!(
        answer.header("content-type"),
        Some("application/json; charset=utf-8")
    );
}

/// The server answers at most eight clients at once.
#[test]
fn several_clients_get_whole_pages_at_once() {
    let server = server();
    std::thread::scope(|scope| {
        for client in 0..6 {
            let server = &server;
            scope.spawn(move || {
                for turn in 0..20 {
                    let (format, accept, _) = BOTH[(client + turn) % 2];
                    let answer = asked(server, &format!("Accept: {accept}\r\n"));
                    // A connection that is about to end still has its slot.
                    if answer.status != 503 {
                        exposition::parse(answer.text(), format).expect("a whole page");
                    }
                }
            });
        }
    });
}
