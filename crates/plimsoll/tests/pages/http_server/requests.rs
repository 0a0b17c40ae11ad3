//! Valid requests, invalid requests, and requests that are too large.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};

use crate::http_server::harness::{TEXT, exchange, get, head_of, page, reset, server};
use plimsoll_testkit::client::{Answer, connect, read_answer};
use plimsoll_testkit::hostile;

/// Sends bytes and closes the sending direction.
fn to_the_end(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    read_answer(&stream)
}

#[test]
fn hostile_clients_are_refused_and_keep_out_no_other() {
    let (_server, address) = server();
    hostile::attack(address, "/debug/pprof/cmdline", 200);
    hostile::attack(address, "/debug/plimsoll/page.js", 200);
}

#[test]
fn clients_that_close_at_once_do_no_harm() {
    let (_server, address) = server();
    for round in 0..300 {
        let mut stream = connect(address);
        // Disconnects in the middle of each step.
        let sent = ["", "GET", "GET /debug/pprof/heap HTTP/1.1\r\n\r\n"][round % 3];
        stream.write_all(sent.as_bytes()).unwrap();
        if round % 2 == 0 {
            reset(stream);
        }
    }
    assert_eq!(page(address, "heap").status, 200);
    // The client closes only its sending direction. It requested nothing, so it gets no answer.
    assert!(to_the_end(address, b"").is_none());
    assert_eq!(page(address, "heap").status, 200);
}

#[test]
fn a_client_that_closes_its_direction_is_answered() {
    let (_server, address) = server();
    for target in ["cmdline", "heap", "heap?debug=1", "none"] {
        let request = format!("GET /debug/pprof/{target} HTTP/1.0\r\n\r\n");
        let answer = to_the_end(address, request.as_bytes()).expect("an answer");
        let status = if target == "none" { 404 } else { 200 };
        assert_eq!(answer.status, status, "{target}");
        let length = answer.body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&*length), "{target}");
    }
}

#[test]
fn a_head_that_is_too_long_is_refused_from_the_first_byte_too_many() {
    let (_server, address) = server();
    let longest = 16 * 1024;
    for (bytes, status) in [
        (longest - 1, 200),
        (longest, 200),
        (longest + 1, 431),
        (longest + 600, 431),
        (longest + 1024, 431),
        (longest * 2, 431),
    ] {
        let answer = exchange(address, &head_of(bytes)).expect("an answer");
        assert_eq!(answer.status, status, "{bytes} bytes");
        assert!(!answer.body.is_empty());
    }
    // A long target and no other header.
    let target = format!("/debug/pprof/heap?{}", "x".repeat(longest));
    assert_eq!(get(address, &target).status, 431);
    // Bytes after the head do not count.
    let mut request = head_of(longest);
    request.resize(longest + 5000, b'x');
    assert_eq!(exchange(address, &request).expect("an answer").status, 200);
    assert_eq!(page(address, "cmdline").status, 200);
}

#[test]
fn more_than_a_hundred_headers_are_refused() {
    let (_server, address) = server();
    for (headers, status) in [(99, 200), (100, 200), (101, 431), (1000, 431)] {
        let lines = "a: b\r\n".repeat(headers);
        let request = format!("GET /debug/pprof/cmdline HTTP/1.1\r\n{lines}\r\n");
        let answer = exchange(address, request.as_bytes()).expect("an answer");
        assert_eq!(answer.status, status, "{headers} headers");
    }
}

#[test]
fn an_invalid_request_is_refused_or_closed() {
    let (_server, address) = server();
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x5a\x00\x00\x00\xff\x13\x01";
    let mut random = 7u64;
    let noise: Vec<u8> = (0..4096)
        .map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        })
        .collect();
    let garbage: [&[u8]; 16] = [
        b"",
        b"\0",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        hello,
        &noise,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /debug/pprof/heap\r\n\r\n",
        b"GET /debug/pprof/heap HTTP/9.9\r\n\r\n",
        b"GET /debug/pprof/\0heap HTTP/1.1\r\n\r\n",
        b"GET /debug/pprof/heap?debug=\xff\xfe HTTP/1.1\r\n\r\n",
        b"GET /debug/pprof/heap HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /debug/pprof/heap HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /debug/pprof/heap HTTP/1.1\r\na: \0\r\n\r\n",
    ];
    for garbage in garbage {
        if let Some(answer) = to_the_end(address, garbage) {
            let shown = String::from_utf8_lossy(garbage);
            assert_eq!(answer.status, 400, "{shown:?}");
            assert!(answer.text().starts_with("Bad Request"), "{shown:?}");
        }
    }
    // The connection stays open: garbage is refused as soon as it is recognized.
    for garbage in [&hello[..], b"\0", b"GET /debug/pprof/heap HTTP/9"] {
        assert_eq!(exchange(address, garbage).expect("an answer").status, 400);
    }
    assert_eq!(page(address, "heap").status, 200);
}

#[test]
fn the_first_of_several_requests_in_a_connection_is_answered() {
    let (_server, address) = server();
    let one = "GET /debug/pprof/cmdline HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = exchange(address, one.repeat(20).as_bytes()).expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("connection"), Some("close"));
    let length = answer.body.len().to_string();
    assert_eq!(
        answer.header("content-length"),
        Some(&*length),
        "and nothing else"
    );
}

#[test]
fn a_request_that_comes_byte_by_byte_is_answered() {
    let (_server, address) = server();
    let mut stream = connect(address);
    stream.set_nodelay(true).unwrap();
    let request =
        b"\r\nGET http://localhost:80/debug/pprof/heap?debug=1#part HTTP/1.1\r\nHost: a.localhost\r\n\r\n";
    for byte in request {
        stream.write_all(&[*byte]).unwrap();
        std::thread::yield_now();
    }
    let answer = read_answer(&stream).expect("an answer");
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some(TEXT))
    );
}

#[test]
fn old_clients_are_answered() {
    let (_server, address) = server();
    let answer = exchange(address, b"GET /debug/pprof/cmdline HTTP/1.0\n\n").expect("an answer");
    assert_eq!(answer.status, 200);
}
