//! The pages in a program's axum server, over real connections.
#![cfg(feature = "axum")]

use plimsoll_testkit::{client, page};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::{Extensions, Request};
use axum::routing::get as answer_get;
use client::{connect, exchange, get, read_answer, request, threads, wait_for};
use page::is_page;
use tokio::runtime::{Builder, Runtime};

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";
const JSON: &str = "application/json; charset=utf-8";

/// A program's server: a page of the program, with Plimsoll's pages merged into it.
struct Program {
    address: SocketAddr,
    /// The thread that serves requests while the program lives.
    serving: Option<std::thread::JoinHandle<()>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Program {
    /// Starts the server. Its threads for blocking work have the name `blocking`, and end soon
    /// after their work.
    fn start(blocking: &str) -> Self {
        Self::with_pages(blocking, |router| router.merge(plimsoll::http::router()))
    }

    /// Starts the server with a function that adds the pages.
    fn with_pages(blocking: &str, add: impl FnOnce(Router) -> Router) -> Self {
        let own = Router::new().route("/", answer_get(async || "the program's own"));
        let service = add(own).into_make_service_with_connect_info::<SocketAddr>();
        let runtime: Runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name(blocking)
            .thread_keep_alive(Duration::from_millis(10))
            .build()
            .unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = std::thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    served = async { axum::serve(listener, service).await } => served.unwrap(),
                    _ = stopped => {}
                }
            });
            // Waits for blocking work that has begun.
            drop(runtime);
        });
        Self {
            address: receiver.recv_timeout(client::HANG).expect("it listens"),
            serving: Some(serving),
            stop: Some(stop),
        }
    }

    /// Ends the runtime and every future on it; fails if that hangs.
    fn end(mut self) {
        drop(self.stop.take());
        let serving = self.serving.take().expect("it is ended once");
        wait_for("the end of the runtime", || serving.is_finished());
        serving.join().expect("the thread ends without a panic");
    }
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .expect("a whole profile");
    out
}

#[test]
fn the_pages_are_those_of_plimsolls_own_server() {
    let program = Program::start("pages");
    let address = program.address;
    assert_eq!(get(address, "/").text(), "the program's own");
    for (target, status, content_type, disposition) in [
        ("", 200, "text/html; charset=utf-8", None),
        ("heap", 200, BINARY, Some("heap")),
        ("he%61p", 200, BINARY, Some("heap")),
        ("heap?debug=1", 200, TEXT, None),
        ("allocs", 200, BINARY, Some("allocs")),
        ("allocs?seconds=1", 200, BINARY, Some("allocs-delta")),
        ("cmdline", 200, TEXT, None),
        ("symbol", 200, TEXT, None),
        ("heap?seconds=x", 400, TEXT, None),
        ("heap?seconds=1&debug=1", 400, TEXT, None),
        ("no-such", 404, TEXT, None),
        ("a/b/c", 404, TEXT, None),
        ("heap/", 404, TEXT, None),
        ("%3Cb%3E", 404, TEXT, None),
        ("profile?seconds=1", 200, BINARY, Some("profile")),
        ("trace", 501, TEXT, None),
    ] {
        let answer = get(address, &format!("/debug/pprof/{target}"));
        is_page(&answer, target, status, content_type, disposition);
        if status == 404 {
            assert_eq!(answer.text(), "Unknown profile\n");
        }
        if content_type == BINARY {
            assert!(!gunzip(&answer.body).is_empty());
        }
    }
    let answer = get(address, "/debug/pprof");
    assert_eq!(
        (answer.status, answer.header("location")),
        (301, Some("./pprof/"))
    );
    for page in ["page.js", "page.css", ""] {
        assert_eq!(get(address, &format!("/debug/plimsoll/{page}")).status, 200);
    }
    assert_eq!(get(address, "/debug/plimsoll/none").status, 404);
    assert_eq!(get(address, "/debug/fgprof?seconds=1").status, 200);
    assert_eq!(get(address, "/debug").status, 404);
    let answer = get(address, "/debug/vars");
    is_page(&answer, "vars", 200, JSON, None);
    assert!(answer.text().contains("\"HeapAlloc\":"));
    program.end();
}

#[test]
fn pages_of_other_sites_are_refused() {
    let program = Program::start("sites");
    for (headers, status) in [
        ("", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Origin: https://app.example\r\n", 200),
        ("Origin: https://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let request = format!(
            "GET /debug/pprof/heap?gc=1 HTTP/1.1\r\nHost: app.example\r\n\
             Connection: close\r\n{headers}\r\n"
        );
        let answer = exchange(program.address, request.as_bytes()).expect("an answer");
        assert_eq!(answer.status, status, "{headers}");
    }
    program.end();
}

/// Several `Accept` headers count as one.
#[test]
fn metrics_have_the_format_that_the_client_accepts() {
    let program = Program::start("metrics");
    let open = "Accept: application/openmetrics-text\r\n";
    for (headers, content_type, end) in [
        ("", "text/plain; version=0.0.4; charset=utf-8", None),
        (
            open,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Some("\n# EOF\n"),
        ),
        (
            &format!("Accept: text/plain;q=0.5\r\n{open}"),
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Some("\n# EOF\n"),
        ),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
        let answer = exchange(program.address, request.as_bytes()).expect("an answer");
        is_page(&answer, headers, 200, content_type, None);
        assert!(
            answer
                .text()
                .contains("\nplimsoll_gc_heap_allocs_bytes_total ")
        );
        let end = end.unwrap_or("\n");
        assert!(answer.text().ends_with(end), "{headers}");
    }
    program.end();
}

#[test]
fn head_and_other_methods_are_answered_as_by_go() {
    let program = Program::start("methods");
    let address = program.address;
    let length = get(address, "/debug/pprof/cmdline").body.len().to_string();
    let head = request(address, "HEAD", "/debug/pprof/cmdline");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(&*length));
    let head = request(address, "HEAD", "/debug/pprof/none");
    assert_eq!((head.status, head.body.len()), (404, 0));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        for target in [
            "/debug/pprof/",
            "/debug/pprof/heap",
            "/debug/vars",
            "/debug/plimsoll/memory",
            "/metrics",
        ] {
            let answer = request(address, method, target);
            assert_eq!(answer.status, 405, "{method} {target}");
            assert_eq!(
                answer.header("allow"),
                Some("GET, HEAD"),
                "{method} {target}"
            );
        }
    }
    let function = head_and_other_methods_are_answered_as_by_go as *const () as usize;
    let body = format!("{function:#x}");
    let request = format!(
        "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(address, request.as_bytes()).expect("an answer");
    assert_eq!(answer.text().lines().next(), Some("num_symbols: 1"));
    program.end();
}

/// A request waits on another thread, so the runtime's only thread answers other requests
/// meanwhile.
#[test]
fn a_delta_does_not_keep_the_program_from_its_work() {
    let program = Program::start("delta");
    let address = program.address;
    let mut delta = connect(address);
    let line = b"GET /debug/pprof/heap?seconds=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    delta.write_all(line).unwrap();
    for _ in 0..20 {
        assert_eq!(get(address, "/").text(), "the program's own");
    }
    assert_eq!(get(address, "/debug/pprof/heap?debug=1").status, 200);
    drop(delta);
    let line = b"GET /debug/pprof/heap?seconds=2 HTTP/1.1\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, line).expect("an answer");
    assert_eq!(answer.status, 200);
    let delta = Some("attachment; filename=\"heap-delta\"");
    assert_eq!(answer.header("content-disposition"), delta);
    program.end();
}

/// Starts requests that would wait for an hour, and returns once they wait.
fn begin_waiting_requests(address: SocketAddr, blocking: &str) -> Vec<std::net::TcpStream> {
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = connect(address);
            let line = b"GET /debug/pprof/heap?seconds=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(line).unwrap();
            stream
        })
        .collect();
    wait_for("three threads that wait", || count(blocking) == 3);
    waiting
}

fn count(blocking: &str) -> usize {
    threads().iter().filter(|name| *name == blocking).count()
}

#[test]
fn a_client_that_goes_away_ends_the_waiting() {
    let program = Program::start("gone");
    let waiting = begin_waiting_requests(program.address, "gone");
    drop(waiting);
    wait_for("the end of the waiting", || count("gone") == 0);
    assert_eq!(get(program.address, "/debug/pprof/cmdline").status, 200);
    program.end();
}

/// A runtime waits for blocking work when it ends; the wait ends with the futures.
#[test]
fn the_end_of_the_program_ends_the_waiting() {
    let program = Program::start("ends");
    let waiting = begin_waiting_requests(program.address, "ends");
    program.end();
    for stream in waiting {
        assert!(read_answer(&stream).is_none(), "it was cut off");
    }
}

/// Each address leads to the index, and is relative to the path of the request.
fn leads_to_the_index(address: SocketAddr, prefix: &str) {
    let name = prefix.rsplit('/').next().unwrap();
    for (path, status, location) in [
        (prefix, 302, format!("./{name}/debug/pprof/")),
        (&format!("{prefix}/"), 302, "./debug/pprof/".into()),
        (&format!("{prefix}/debug/pprof"), 301, "./pprof/".into()),
        (
            &format!("{prefix}/debug/plimsoll"),
            301,
            "./plimsoll/".into(),
        ),
    ] {
        let answer = get(address, path);
        let found = (answer.status, answer.header("location"));
        assert_eq!(found, (status, Some(&*location)), "{path}");
    }
    assert_eq!(get(address, &format!("{prefix}/debug/pprof/")).status, 200);
    assert_eq!(get(address, &format!("{prefix}/none")).status, 404);
    assert_eq!(get(address, "/").text(), "the program's own");
}

#[test]
fn a_nested_service_has_the_pages_below_its_prefix() {
    let program = Program::with_pages("nested", |router| {
        router.nest_service("/a/internal", plimsoll::http::service())
    });
    leads_to_the_index(program.address, "/a/internal");
    program.end();
}

#[test]
fn a_fallback_service_has_the_pages_below_its_prefix() {
    let program = Program::with_pages("fallback", |router| {
        router.fallback_service(plimsoll::http::service().below("/a/internal/"))
    });
    leads_to_the_index(program.address, "/a/internal");
    assert_eq!(get(program.address, "/debug/pprof/").status, 404);
    program.end();
}

fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map(|peer| peer.0)
}

#[test]
fn a_service_for_loopback_peers_checks_peer_and_host() {
    let program = Program::with_pages("loopback", |router| {
        let service = plimsoll::http::service();
        let unknown = service.clone().loopback_only(|_| None);
        let remote = service
            .clone()
            .loopback_only(|_| Some(([10, 0, 0, 7], 80).into()));
        router
            .nest_service("/unknown", unknown)
            .nest_service("/remote", remote)
            .fallback_service(service.loopback_only(peer))
    });
    for (path, headers, status, text) in [
        ("/metrics", "Host: localhost", 200, ""),
        ("/metrics", "Host: evil.example", 403, "evil.example"),
        (
            "/metrics",
            "X-Forwarded-For: 127.0.0.1",
            403,
            "x-forwarded-for",
        ),
        (
            "http://evil.example/metrics",
            "Host: localhost",
            403,
            "evil.example",
        ),
        (
            "/remote/metrics",
            "Host: localhost",
            403,
            "10.0.0.7 is not a loopback address",
        ),
        (
            "/unknown/metrics",
            "Host: localhost",
            403,
            "does not report the address",
        ),
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n\r\n");
        let answer = exchange(program.address, request.as_bytes()).expect("an answer");
        assert_eq!(answer.status, status, "{path} {headers}");
        assert!(answer.text().contains(text), "{}", answer.text());
    }
    program.end();
}

#[test]
fn without_a_runtime_the_answer_names_the_reason() {
    let request = Request::get("/metrics")
        .body(axum::body::Body::empty())
        .unwrap();
    let mut service = plimsoll::http::service();
    let answer = futures::executor::block_on(tower_service::Service::call(&mut service, request));
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 500);
    let body = futures::executor::block_on(axum::body::to_bytes(
        axum::body::Body::new(answer.into_body()),
        usize::MAX,
    ));
    let text = String::from_utf8(body.unwrap().to_vec()).unwrap();
    assert!(text.contains("need a runtime of tokio"), "{text}");
}
