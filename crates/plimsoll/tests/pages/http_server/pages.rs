//! Answers to well-behaved clients.

use std::hint::black_box;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http_server::harness::{
    BINARY, HTML, TEXT, exchange, get, gunzip, page, request, server, take_all_waiting,
};
use plimsoll_testkit::client::{Answer, connect, read_answer};
use plimsoll_testkit::page::is_page;

#[test]
fn every_page_has_gos_status_and_headers_over_the_wire() {
    let (_server, address) = server();
    for (target, status, content_type, disposition) in [
        ("", 200, HTML, None),
        ("heap", 200, BINARY, Some("heap")),
        ("heap?debug=0", 200, BINARY, Some("heap")),
        ("heap?debug=1", 200, TEXT, None),
        ("heap?gc=1&debug=2", 200, TEXT, None),
        ("heap?seconds=1", 200, BINARY, Some("heap-delta")),
        ("allocs", 200, BINARY, Some("allocs")),
        ("allocs?debug=1", 200, TEXT, None),
        ("allocs?seconds=1", 200, BINARY, Some("allocs-delta")),
        ("cmdline", 200, TEXT, None),
        ("symbol", 200, TEXT, None),
        ("no-such", 404, TEXT, None),
        ("heap?seconds=x", 400, TEXT, None),
        ("heap?peak=1", 200, BINARY, Some("peak")),
        ("heap?peak=1&debug=1", 200, TEXT, None),
        ("heap?peak=1&seconds=1", 400, TEXT, None),
        ("peak?seconds=1", 400, TEXT, None),
        ("profile?seconds=1", 200, BINARY, Some("profile")),
        ("trace", 501, TEXT, None),
    ] {
        let answer = page(address, target);
        is_page(&answer, target, status, content_type, disposition);
        assert_eq!(answer.header("connection"), Some("close"), "{target}");
        if content_type == BINARY {
            assert!(!gunzip(&answer.body).is_empty(), "{target}");
        }
    }
    assert!(
        page(address, "")
            .text()
            .contains("Types of profiles available:")
    );
    assert_eq!(page(address, "symbol").text(), "num_symbols: 1\n");
    assert!(
        page(address, "heap?debug=1")
            .text()
            .starts_with("heap profile: ")
    );
    let program = std::env::args().next().unwrap();
    assert!(
        page(address, "cmdline")
            .body
            .starts_with(program.as_bytes())
    );
    let answer = get(address, "/debug/pprof");
    assert_eq!(
        (answer.status, answer.header("location")),
        (301, Some("./pprof/"))
    );
    let answer = get(address, "/");
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some("./debug/pprof/"))
    );
    for elsewhere in ["/debug", "/debug/pprofx", "*"] {
        assert_eq!(get(address, elsewhere).status, 404, "{elsewhere}");
    }
}

#[test]
fn head_is_answered_with_the_length_and_without_the_body() {
    let (_server, address) = server();
    for (target, status) in [
        ("cmdline", 200),
        ("heap", 200),
        ("none", 404),
        ("heap?seconds=1", 200),
    ] {
        let answer = request(address, "HEAD", &format!("/debug/pprof/{target}"));
        assert_eq!((answer.status, answer.body.len()), (status, 0), "{target}");
        let length = answer.header("content-length").expect("a length");
        assert_ne!(length.parse::<usize>(), Ok(0), "{target}");
    }
    let length = page(address, "cmdline").body.len().to_string();
    let head = request(address, "HEAD", "/debug/pprof/cmdline");
    assert_eq!(head.header("content-length"), Some(&*length));
    let taken = take_all_waiting(address);
    let refused = request(address, "HEAD", "/debug/pprof/heap?seconds=3600");
    assert_eq!((refused.status, refused.body.len()), (503, 0));
    drop(taken);
}

#[test]
fn other_methods_get_the_allowed_ones() {
    let (_server, address) = server();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "BREW"] {
        let answer = request(address, method, "/debug/pprof/heap?seconds=1");
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
        assert!(!answer.body.is_empty());
    }
    // The same with a body, which the server does not read.
    let answer = post(address, "/debug/pprof/heap", &"x".repeat(20_000));
    assert_eq!(answer.status, 405);
    let answer = request(address, "PUT", "/debug/pprof/symbol");
    assert_eq!(answer.status, 405);
    assert_eq!(answer.header("allow"), Some("GET, HEAD, POST"));
}

fn post(address: SocketAddr, target: &str, body: &str) -> Answer {
    let length = body.len();
    let head =
        format!("POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    exchange(address, (head + body).as_bytes()).expect("an answer")
}

/// Go's tool sends the addresses of a whole mapping.
#[test]
fn symbols_are_answered_by_post_as_by_get() {
    let (_server, address) = server();
    let functions = [
        other_methods_get_the_allowed_ones as *const () as usize,
        profiles_are_served_while_threads_allocate as *const () as usize,
    ];
    let addresses = functions.map(|function| format!("{function:#x}")).join("+");
    let got = get(address, &format!("/debug/pprof/symbol?{addresses}"));
    let posted = post(address, "/debug/pprof/symbol?0x1", &addresses);
    assert_eq!((posted.status, posted.text()), (200, got.text()));
    assert!(
        got.text()
            .contains("profiles_are_served_while_threads_allocate")
    );
    // Longer than a read, in two parts.
    let many = format!("{addresses}+").repeat(5000);
    let posted = post(address, "/debug/pprof/symbol", &many);
    assert_eq!(posted.text().lines().count(), 10_001);
    let mut stream = connect(address);
    let length = addresses.len();
    let head = format!(
        "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{}",
        &addresses[..10]
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&addresses.as_bytes()[10..]).unwrap();
    assert_eq!(read_answer(&stream).expect("an answer").text(), got.text());
    for (headers, status) in [
        ("", 200),
        ("Content-Length: 300000\r\n", 413),
        ("Content-Length: x\r\n", 411),
        ("Transfer-Encoding: chunked\r\n", 411),
    ] {
        let head = format!("POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        let answer = exchange(address, head.as_bytes()).expect("an answer");
        assert_eq!(answer.status, status, "{headers}");
    }
}

#[test]
fn profiles_are_served_while_threads_allocate() {
    let (_server, address) = server();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                let mut turn = seed;
                while !stop.load(Ordering::Relaxed) {
                    turn = turn.wrapping_mul(25_214_903_917).wrapping_add(11);
                    kept.push(black_box(vec![1; turn % 5000]));
                    if kept.len() > 100 {
                        kept.swap_remove(turn / 7 % 100);
                    }
                }
            });
        }
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..2 {
                        for target in ["heap", "allocs", "heap?debug=1", "", "heap?seconds=1"] {
                            let answer = page(address, target);
                            assert_eq!(answer.status, 200, "{target}");
                            if answer.header("content-type") == Some(BINARY) {
                                assert!(!gunzip(&answer.body).is_empty());
                            }
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
}
