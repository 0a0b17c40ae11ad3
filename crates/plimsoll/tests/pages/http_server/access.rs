//! Requests that a web page can make a browser send.

use std::io::Write;
use std::net::SocketAddr;

use plimsoll::gc::Collector;
use plimsoll::http::{serve, serve_hosts};

use crate::http_server::harness::server;
use plimsoll_testkit::child;
use plimsoll_testkit::client::{Answer, connect, exchange, get, wait_for};

/// Sends a request with these header lines and returns the answer.
fn ask(address: SocketAddr, target: &str, headers: &[&str]) -> Answer {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {target} HTTP/1.1\r\n{headers}\r\n");
    exchange(address, request.as_bytes()).expect("an answer")
}

fn status(address: SocketAddr, headers: &[&str]) -> u16 {
    ask(address, "/debug/pprof/cmdline", headers).status
}

#[test]
fn only_hosts_of_the_program_are_served() {
    let (_server, address) = server();
    let port = address.port();
    for (headers, wanted) in [
        (&[][..], 200),
        (&["Host: localhost"], 200),
        (&[&*format!("Host: localhost:{port}")], 200),
        (&[&*format!("host:{address}")], 200),
        (&["Host: [::1]:6060"], 200),
        (&["Host: 192.0.2.7:6060"], 200),
        (&["Host: rebound.evil.example"], 403),
        (&[&*format!("Host: rebound.evil.example:{port}")], 403),
        (&["Host: localhost", "Host: localhost"], 400),
        (&["Host: localhost", "hOST: evil.example"], 400),
        (&["Host:"], 400),
        (&["Host: a b"], 400),
        (&["Host: \u{e9}"], 400),
    ] {
        assert_eq!(status(address, headers), wanted, "{headers:?}");
    }
    let answer = ask(address, "/metrics", &["Host: a.example:1"]);
    assert_eq!(answer.status, 403);
    assert!(
        answer.text().contains("\"a.example:1\"") && answer.text().contains("http_hosts"),
        "{answer:?}"
    );
    for (target, wanted) in [
        ("http://localhost/debug/pprof/cmdline", 200),
        ("HTTP://127.0.0.1:80/debug/pprof/cmdline", 200),
        ("http://evil.example/debug/pprof/cmdline", 403),
        ("http://user@localhost/debug/pprof/cmdline", 400),
        ("http:///debug/pprof/cmdline", 400),
        ("https://localhost/debug/pprof/cmdline", 404),
        ("localhost:80", 404),
        ("*", 404),
    ] {
        let answer = ask(address, target, &["Host: localhost"]);
        assert_eq!(answer.status, wanted, "{target}");
    }
}

#[test]
fn names_that_were_configured_are_served() {
    let server = serve_hosts("localhost:0", &["app", "Debug.Example.com"]).expect("a free port");
    for (host, wanted) in [
        ("app:6060", 200),
        ("debug.example.com.", 200),
        ("localhost", 200),
        ("example.com", 403),
    ] {
        let host = format!("Host: {host}");
        assert_eq!(status(server.address(), &[&host]), wanted, "{host}");
    }
    let error = serve_hosts("127.0.0.1:0", &["a:80"]).expect_err("a port");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("\"a:80\" has a port"), "{error}");
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let (_server, address) = server();
    let host = format!("Host: {address}");
    for (header, wanted) in [
        ("Sec-Fetch-Site: none", 200),
        ("Sec-Fetch-Site: same-origin", 200),
        ("Sec-Fetch-Site: same-site", 200),
        ("Sec-Fetch-Site: cross-site", 403),
        ("Origin: http://localhost:3000", 200),
        ("Origin: https://evil.example", 403),
        ("Origin: null", 403),
    ] {
        assert_eq!(status(address, &[&host, header]), wanted, "{header}");
    }
}

fn collections_are_not_for_other_sites() {
    let (_server, address) = server();
    let collector = Collector::register("test").unwrap();
    for header in ["Sec-Fetch-Site: cross-site", "Origin: https://evil.example"] {
        let answer = ask(
            address,
            "/debug/pprof/heap?gc=1",
            &["Host: localhost", header],
        );
        assert_eq!(answer.status, 403, "{header}");
        assert!(!collector.is_wanted(), "{header}");
    }
    // The wait for a collector that never comes ends when the client disconnects.
    let mut stream = connect(address);
    let request = "GET /debug/pprof/heap?gc=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    wait_for("a wish for a collection", || collector.is_wanted());
    assert_eq!(get(address, "/debug/pprof/heap").status, 200);
    drop(stream);
}

/// Runs in a separate process, because other tests request collections as well.
#[test]
fn no_page_of_another_site_runs_the_collectors() {
    child::run(
        "access::no_page_of_another_site_runs_the_collectors",
        "",
        collections_are_not_for_other_sites,
    );
}

#[test]
fn every_address_of_the_machine_is_served_by_number() {
    let server = serve("0.0.0.0:0").expect("a free port");
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    assert_eq!(get(address, "/debug/pprof/cmdline").status, 200);
    assert_eq!(status(address, &["Host: 0.0.0.0:6060"]), 200);
    assert_eq!(status(address, &["Host: rebound.example"]), 403);
}
