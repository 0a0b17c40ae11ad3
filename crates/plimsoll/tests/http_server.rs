//! The pages over real connections: what is promised to clients that behave, and what those that do
//! not cannot bring about.
#![cfg(feature = "http")]

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
mod client;

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Answer, connect, read_answer, threads, wait_for};
use plimsoll::http::{Server, serve};

/// As many requests as are answered at once.
const PLACES: usize = 8;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const BINARY: &str = "application/octet-stream";

fn server() -> (Server, SocketAddr) {
    let server = serve("127.0.0.1:0").expect("there is a free port");
    let address = server.address();
    (server, address)
}

/// Asks until there is a place free: the server gives one back a moment after the answer was read.
fn answered(ask: impl Fn() -> Option<Answer>) -> Option<Answer> {
    let mut answer = ask();
    let refused = |answer: &Option<Answer>| answer.as_ref().is_some_and(|it| it.status == 503);
    wait_for("a free place", || {
        if refused(&answer) {
            answer = ask();
        }
        !refused(&answer)
    });
    answer
}

fn exchange(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    answered(|| client::exchange(address, request))
}

fn request(address: SocketAddr, method: &str, target: &str) -> Answer {
    answered(|| Some(client::request(address, method, target))).expect("an answer")
}

fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target)
}

fn page(address: SocketAddr, target: &str) -> Answer {
    get(address, &format!("/debug/pprof/{target}"))
}

/// Sends the request for a delta of that many seconds, which goes on in the returned connection.
fn start_delta(address: SocketAddr, seconds: u64) -> TcpStream {
    let mut stream = connect(address);
    let request = format!("GET /debug/pprof/heap?seconds={seconds} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Takes all places, for as long as the returned connections are open.
fn take_all_places(address: SocketAddr) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    wait_for("all places", || {
        taken.resize_with(PLACES, || start_delta(address, 1_000_000));
        // Connections are taken in the order in which they were made: those that were refused,
        // because places were not free yet, know by now.
        let refused = page_once(address).status == 503;
        taken.retain(is_waiting);
        refused && taken.len() == PLACES
    });
    taken
}

/// Whether nothing was answered so far.
fn is_waiting(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

fn page_once(address: SocketAddr) -> Answer {
    client::get(address, "/debug/pprof/cmdline")
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .expect("a whole profile");
    out
}

/// Closes at once, without the polite end: the server gets an error rather than the end.
fn reset(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: an open socket, and a valid value of the size given.
    let status = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
    drop(stream);
}

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
        ("profile?seconds=1", 501, TEXT, None),
        ("trace", 501, TEXT, None),
    ] {
        let answer = page(address, target);
        assert_eq!(answer.status, status, "{target}");
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{target}"
        );
        let disposition = disposition.map(|name| format!("attachment; filename=\"{name}\""));
        assert_eq!(
            answer.header("content-disposition"),
            disposition.as_deref(),
            "{target}"
        );
        assert_eq!(
            answer.header("x-content-type-options"),
            Some("nosniff"),
            "{target}"
        );
        assert_eq!(answer.header("connection"), Some("close"), "{target}");
        let length = answer.body.len().to_string();
        assert_eq!(answer.header("content-length"), Some(&*length), "{target}");
        let error = (status >= 400).then_some("1");
        assert_eq!(answer.header("x-go-pprof"), error, "{target}");
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
        (301, Some("/debug/pprof/"))
    );
    for elsewhere in ["/", "/debug", "/debug/pprofx", "*"] {
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
    let taken = take_all_places(address);
    let refused = client::request(address, "HEAD", "/debug/pprof/cmdline");
    assert_eq!((refused.status, refused.body.len()), (503, 0));
    drop(taken);
}

#[test]
fn other_methods_are_told_which_are_allowed() {
    let (_server, address) = server();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get", "BREW"] {
        let answer = request(address, method, "/debug/pprof/heap?seconds=1");
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{method}");
        assert!(!answer.body.is_empty());
    }
    // Also with a body that nobody reads.
    let body = "x".repeat(20_000);
    let request = format!(
        "POST /debug/pprof/symbol HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(
        exchange(address, request.as_bytes())
            .expect("an answer")
            .status,
        405
    );
}

#[test]
fn eight_requests_that_wait_are_all_answered() {
    let (_server, address) = server();
    let waiting: Vec<_> = (0..PLACES).map(|_| start_delta(address, 2)).collect();
    for stream in waiting {
        let answer = read_answer(&stream).expect("an answer");
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-disposition"),
            Some("attachment; filename=\"heap-delta\"")
        );
        assert!(!gunzip(&answer.body).is_empty());
    }
    assert_eq!(page(address, "heap").status, 200);
}

#[test]
fn one_request_too_many_is_told_so_and_the_others_go_on() {
    let (_server, address) = server();
    let taken = take_all_places(address);
    for _ in 0..5 {
        let refused = page_once(address);
        assert_eq!(refused.status, 503);
        assert!(refused.text().contains("too many requests"), "{refused:?}");
        let length = refused.body.len().to_string();
        assert_eq!(refused.header("content-length"), Some(&*length));
    }
    assert!(taken.iter().all(is_waiting));
    drop(taken);
    assert_eq!(page(address, "heap").status, 200);
}

/// Every way of leaving in the middle of a long request gives the place back: each is tried by
/// eight at once, so that one place which is not given back is noticed by the next round.
#[test]
fn a_client_that_goes_away_gives_its_place_back() {
    let (_server, address) = server();
    type Leave = fn(TcpStream);
    let ways: [(&str, Leave); 4] = [
        ("closes", drop),
        ("resets", reset),
        ("sends another request and closes", |mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            drop(stream);
        }),
        ("sends a byte too many and resets", |mut stream| {
            stream.write_all(b"\n").unwrap();
            reset(stream);
        }),
    ];
    for (how, leave) in ways {
        take_all_places(address).into_iter().for_each(leave);
        wait_for(how, || page_once(address).status == 200);
    }
    drop(take_all_places(address));
}

#[test]
fn clients_that_stall_stop_nobody_and_are_sent_away() {
    let (_server, address) = server();
    let stalled = ["", "GE", "GET /debug/pp", "GET / HTTP/1.1\r\nHos"].map(|part| {
        let mut stream = connect(address);
        stream.write_all(part.as_bytes()).unwrap();
        stream
    });
    for _ in 0..20 {
        assert_eq!(page(address, "cmdline").status, 200);
    }
    for stream in stalled {
        assert_eq!(read_answer(&stream).expect("an answer").status, 408);
    }
}

/// Sends bytes and closes that direction.
fn to_the_end(address: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    answered(|| {
        let mut stream = connect(address);
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        read_answer(&stream)
    })
}

#[test]
fn clients_that_close_at_once_do_no_harm() {
    let (_server, address) = server();
    for round in 0..100 {
        let stream = connect(address);
        if round % 2 == 0 {
            reset(stream);
        }
    }
    assert_eq!(page(address, "heap").status, 200);
    // Closing one direction only: nothing was asked, so nothing is said.
    assert!(to_the_end(address, b"").is_none());
    assert_eq!(page(address, "heap").status, 200);
}

/// A request for the command line whose head has that many bytes.
fn head_of(bytes: usize) -> Vec<u8> {
    let mut head = b"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: test\r\nX: ".to_vec();
    head.resize(bytes - 4, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
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
    // Nothing but a target.
    let target = format!("/debug/pprof/heap?{}", "x".repeat(longest));
    assert_eq!(get(address, &target).status, 431);
    // What lies behind the head does not count.
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
fn what_is_no_request_is_refused_or_closed() {
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
    // Without an end of the connection, garbage is refused as soon as it is seen to be such.
    for garbage in [&hello[..], b"\0", b"GET /debug/pprof/heap HTTP/9"] {
        assert_eq!(exchange(address, garbage).expect("an answer").status, 400);
    }
    assert_eq!(page(address, "heap").status, 200);
}

#[test]
fn of_several_requests_in_one_connection_the_first_is_answered() {
    let (_server, address) = server();
    let one = "GET /debug/pprof/cmdline HTTP/1.1\r\nHost: test\r\n\r\n";
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
        b"\r\nGET http://name:80/debug/pprof/heap?debug=1#part HTTP/1.1\r\nHost: a\r\n\r\n";
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

fn parameters_of_all_kinds() {
    const NOT_POSITIVE: &str = "invalid value for \"seconds\" - must be a positive integer\n";
    const INCOMPATIBLE: &str = "seconds and debug params are incompatible\n";
    let (_server, address) = server();
    let digits = "9".repeat(20);
    let many = "7".repeat(10_000);
    let zeros = "0".repeat(10_000);
    for profile in ["heap", "allocs"] {
        for seconds in [
            "0", "-1", "abc", "1.5", "1s", "%ff", "%00", "+1", "1%20", "0x1", &digits, &many,
            &zeros,
        ] {
            for rest in ["", "&debug=1", "&debug=x", "&gc=1", "&seconds=1"] {
                let answer = page(address, &format!("{profile}?seconds={seconds}{rest}"));
                assert_eq!(
                    (answer.status, answer.text()),
                    (400, NOT_POSITIVE),
                    "{seconds}{rest}"
                );
            }
        }
        // A number that does not fit is taken as the nearest that does.
        for debug in ["1", "2", "-1", "%31", &digits, &many, &format!("-{many}")] {
            for query in [
                format!("seconds=1&debug={debug}"),
                format!("debug={debug}&seconds=1"),
            ] {
                let answer = page(address, &format!("{profile}?{query}"));
                assert_eq!(
                    (answer.status, answer.text()),
                    (400, INCOMPATIBLE),
                    "{query:.60}"
                );
            }
        }
    }
    for (query, content_type) in [
        ("debug", BINARY),
        ("debug=x", BINARY),
        ("debug=%ff%fe", BINARY),
        ("debug=%", BINARY),
        ("%64ebug=1", TEXT),
        ("debug=1&debug=0", TEXT),
        ("debug=0&debug=1", BINARY),
        ("debug=1;seconds=x", BINARY),
        (&format!("debug={digits}"), TEXT),
        (&format!("debug={many}"), TEXT),
        (&format!("debug=-{many}"), BINARY),
        (&format!("gc={many}"), BINARY),
        ("seconds=", BINARY),
        ("seconds=&seconds=x", BINARY),
        ("%ff=%ff", BINARY),
        ("?", BINARY),
        (&"&".repeat(10_000), BINARY),
    ] {
        let answer = page(address, &format!("heap?{query}"));
        assert_eq!(answer.status, 200, "{query:.60}");
        assert_eq!(
            answer.header("content-type"),
            Some(content_type),
            "{query:.60}"
        );
    }
    for query in ["seconds=x", "seconds=1&debug=1", "debug=1", &many] {
        let answer = page(address, &format!("none?{query}"));
        assert_eq!(
            (answer.status, answer.text()),
            (404, "Unknown profile\n"),
            "{query:.60}"
        );
    }
    for query in [
        "",
        "0",
        "0x",
        "%30",
        &digits,
        &many,
        &"1+".repeat(5000),
        "é",
    ] {
        let answer = page(address, &format!("symbol?{query}"));
        assert_eq!(
            (answer.status, answer.text()),
            (200, "num_symbols: 1\n"),
            "{query:.60}"
        );
    }
    assert_eq!(page(address, "heap").status, 200);
}

/// Without stacks, so that no names need to be found: there are many requests.
#[test]
fn parameters_are_checked_in_gos_order_whatever_they_are() {
    child::run(
        "parameters_are_checked_in_gos_order_whatever_they_are",
        "stack_depth=0",
        parameters_of_all_kinds,
    );
}

#[test]
fn an_unknown_name_is_not_repeated() {
    let (_server, address) = server();
    for name in [
        "<script>alert(1)</script>",
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "heap/",
        "heap%2f",
        "heap%00",
        "%ff%fe",
        "../heap",
        "Heap",
        "heap%20",
        &"a".repeat(10_000),
    ] {
        let answer = page(address, name);
        assert_eq!(
            (answer.status, answer.text()),
            (404, "Unknown profile\n"),
            "{name:.60}"
        );
        assert_eq!(answer.header("content-type"), Some(TEXT));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
}

/// Go reads the path of a request decoded, and a path that cannot be is no request.
#[test]
fn escapes_in_the_path_are_undone() {
    let (_server, address) = server();
    for path in [
        "/debug/pprof/he%61p",
        "/debug/pprof/%68%65%61%70",
        "/%64ebug/pprof%2Fheap",
    ] {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(
            answer.header("content-disposition"),
            Some("attachment; filename=\"heap\"")
        );
    }
    for path in [
        "/debug/pprof/%",
        "/debug/pprof/%6",
        "/debug/pprof/%zz",
        "/debug/pprof/%+1",
    ] {
        assert_eq!(get(address, path).status, 400, "{path}");
    }
    assert_eq!(page(address, "he+ap").status, 404);
}

#[test]
fn an_address_that_cannot_be_served_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap();
    let error = serve(in_use).expect_err("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&in_use.to_string()), "{error}");
    for address in [
        "",
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        "127.0.0.1:http",
        "192.0.2.1:0",
        "[::1:0",
        "no-such-host.invalid:6060",
    ] {
        let error = serve(address).expect_err(address).to_string();
        assert!(error.contains(&format!("at {address}: ")), "{error}");
        assert!(error.starts_with("cannot serve profiles at "), "{error}");
    }
}

#[test]
fn port_zero_is_any_that_is_free() {
    let servers = [server(), server(), server()];
    for (server, address) in &servers {
        assert_ne!(address.port(), 0);
        assert_eq!(page(server.address(), "cmdline").status, 200);
    }
    assert_ne!(servers[0].1, servers[1].1);
}

fn drop_and_serve_again() {
    let (server, address) = server();
    let begun = start_delta(address, 2);
    // Accepted after the other, hence that one was accepted.
    assert_eq!(page(address, "cmdline").status, 200);
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "nobody listens");
    let again = serve(address).expect("the port is free");
    assert_eq!(page(again.address(), "cmdline").status, 200);
    let answer = read_answer(&begun).expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(!gunzip(&answer.body).is_empty());
}

/// In a process of its own: in another, a test that starts one has all descriptors in two processes
/// for a moment, and the port is not free before both have closed it.
#[test]
fn a_dropped_server_gives_its_port_back_and_answers_what_it_has_begun() {
    child::run(
        "a_dropped_server_gives_its_port_back_and_answers_what_it_has_begun",
        "",
        drop_and_serve_again,
    );
}

#[test]
fn a_server_can_be_dropped_while_clients_keep_coming() {
    let (server, address) = server();
    let stop = AtomicBool::new(false);
    let (done, dropped) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // They ask for nothing, and stay: whoever is taken for one too many takes a while.
        for _ in 0..3 {
            scope.spawn(|| {
                let mut kept = std::collections::VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    kept.extend(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
                    if kept.len() > 100 {
                        kept.pop_front();
                    }
                }
            });
        }
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(server);
            let _ = done.send(());
        });
        let dropped = dropped.recv_timeout(client::HANG);
        stop.store(true, Ordering::Relaxed);
        dropped.expect("dropping it comes to an end");
    });
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

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("there is /proc")
        .count()
}

fn nothing_is_left_of_connections() {
    let before = (descriptors(), threads().len());
    let (server, address) = server();
    assert_eq!(page(address, "heap").status, 200);
    let settle = |descriptors_wanted, threads_wanted| {
        wait_for("threads that end and descriptors that are closed", || {
            (descriptors(), threads().len()) == (descriptors_wanted, threads_wanted)
        });
    };
    // The listening socket and the bell; the thread that accepts.
    settle(before.0 + 2, before.1 + 1);
    for round in 0..200 {
        match round % 8 {
            0 => assert_eq!(page(address, "heap").status, 200),
            1 => assert_eq!(page(address, "none").status, 404),
            2 => assert_eq!(request(address, "POST", "/debug/pprof/").status, 405),
            3 => drop(exchange(address, b"\0\0\0\0")),
            4 => drop(connect(address)),
            5 => reset(start_delta(address, 1000)),
            6 => drop(exchange(address, &head_of(20_000))),
            _ => drop(start_delta(address, 1000)),
        }
    }
    settle(before.0 + 2, before.1 + 1);
    drop(server);
    settle(before.0, before.1);
}

#[test]
fn connections_leave_no_descriptors_and_no_threads_behind() {
    child::run(
        "connections_leave_no_descriptors_and_no_threads_behind",
        "",
        nothing_is_left_of_connections,
    );
}

/// Processor time of the thread that accepts, in ticks.
fn time_of_accepting_thread() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there is /proc");
    let stat = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .find(|stat| stat.contains("(plimsoll-http)"))
        .expect("the thread has a name");
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    // From the third field on: the 14th and 15th are user and system time.
    let times = fields
        .skip(11)
        .take(2)
        .map(|time| time.parse::<u64>().unwrap());
    times.sum()
}

fn limit_descriptors(limit: libc::rlim_t) -> libc::rlim_t {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: valid places for the limits.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits), 0);
        let before = std::mem::replace(&mut limits.rlim_cur, limit);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits), 0);
        before
    }
}

fn no_descriptor_is_left() {
    let (_server, address) = server();
    assert_eq!(page(address, "cmdline").status, 200);
    wait_for("the end of the request", || {
        !threads().iter().any(|name| name == "plimsoll-reques")
    });
    // SAFETY: makes a new socket, which is nobody else's.
    let mut stream = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        <TcpStream as std::os::fd::FromRawFd>::from_raw_fd(socket)
    };
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    let before = time_of_accepting_thread();
    // What is open stays open; there is just nothing more to be had.
    let limit = limit_descriptors(3);
    // SAFETY: an open socket, and a valid address of the size given.
    let status = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const to).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0, "the system takes the connection for the server");
    std::thread::sleep(Duration::from_secs(2));
    limit_descriptors(limit);
    let ticks = time_of_accepting_thread() - before;
    assert!(ticks < 5, "{ticks} ticks of processor time for waiting");
    stream
        .write_all(b"GET /debug/pprof/cmdline HTTP/1.1\r\n\r\n")
        .unwrap();
    stream.set_read_timeout(Some(client::HANG)).unwrap();
    assert_eq!(read_answer(&stream).expect("an answer").status, 200);
}

#[test]
fn without_descriptors_the_server_waits_for_some_and_does_not_spin() {
    child::run(
        "without_descriptors_the_server_waits_for_some_and_does_not_spin",
        "",
        no_descriptor_is_left,
    );
}
