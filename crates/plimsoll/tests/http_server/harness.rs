//! A server, what it is asked, and what it may be asked for at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use plimsoll::http::{Server, serve};

use crate::client::{self, Answer, connect, wait_for};

/// As many requests as are answered at once.
pub const PLACES: usize = 8;

pub const TEXT: &str = "text/plain; charset=utf-8";

pub const HTML: &str = "text/html; charset=utf-8";

pub const BINARY: &str = "application/octet-stream";

pub fn server() -> (Server, SocketAddr) {
    let server = serve("127.0.0.1:0").expect("there is a free port");
    let address = server.address();
    (server, address)
}

/// Asks until there is a place free: the server gives one back a moment after the answer was read.
pub fn answered(ask: impl Fn() -> Option<Answer>) -> Option<Answer> {
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

pub fn exchange(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    answered(|| client::exchange(address, request))
}

pub fn request(address: SocketAddr, method: &str, target: &str) -> Answer {
    answered(|| Some(client::request(address, method, target))).expect("an answer")
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target)
}

pub fn page(address: SocketAddr, target: &str) -> Answer {
    get(address, &format!("/debug/pprof/{target}"))
}

/// Sends the request for a delta of that many seconds, which goes on in the returned connection.
pub fn start_delta(address: SocketAddr, seconds: u64) -> TcpStream {
    let mut stream = connect(address);
    let request = format!("GET /debug/pprof/heap?seconds={seconds} HTTP/1.1\r\nHost: test\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Takes all places, for as long as the returned connections are open.
pub fn take_all_places(address: SocketAddr) -> Vec<TcpStream> {
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
pub fn is_waiting(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

pub fn page_once(address: SocketAddr) -> Answer {
    client::get(address, "/debug/pprof/cmdline")
}

pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .expect("a whole profile");
    out
}

/// Closes at once, without the polite end: the server gets an error rather than the end.
pub fn reset(stream: TcpStream) {
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

/// A request for the command line whose head has that many bytes.
pub fn head_of(bytes: usize) -> Vec<u8> {
    let mut head = b"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: test\r\nX: ".to_vec();
    head.resize(bytes - 4, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
}
