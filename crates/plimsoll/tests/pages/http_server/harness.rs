//! A server, requests to it, and its limits on concurrent requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use plimsoll::http::{Server, serve};

use plimsoll_testkit::client::{Answer, connect, wait_for};
pub use plimsoll_testkit::client::{exchange, request};

/// The number of requests that may wait for the end of `seconds=` at once.
pub const WAITING: usize = 8;

/// The largest value of `seconds`.
pub const HOUR: u64 = 3600;

pub const TEXT: &str = "text/plain; charset=utf-8";

pub const HTML: &str = "text/html; charset=utf-8";

pub const BINARY: &str = "application/octet-stream";

pub fn server() -> (Server, SocketAddr) {
    let server = serve("127.0.0.1:0").expect("a port is free");
    let address = server.address();
    (server, address)
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target)
}

pub fn page(address: SocketAddr, target: &str) -> Answer {
    get(address, &format!("/debug/pprof/{target}"))
}

/// Requests a difference over this many seconds. The request continues on the returned connection.
pub fn start_delta(address: SocketAddr, seconds: u64) -> TcpStream {
    let mut stream = connect(address);
    let request =
        format!("GET /debug/pprof/heap?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Takes all slots for waiting requests, for as long as the returned connections are open.
pub fn take_all_waiting(address: SocketAddr) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    wait_for("all places", || {
        taken.resize_with(WAITING, || start_delta(address, HOUR - 1));
        // This request would end last, so it is refused exactly when the others wait.
        let last = start_delta(address, HOUR);
        let mut is_refused = false;
        wait_for("eight that wait", || {
            is_refused = !is_waiting(&last);
            is_refused || taken.iter().any(|stream| !is_waiting(stream))
        });
        taken.retain(is_waiting);
        is_refused && taken.len() == WAITING
    });
    taken
}

/// Reports whether no answer has arrived yet.
pub fn is_waiting(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let seen = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    seen.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .expect("a whole profile");
    out
}

/// Resets the connection, so that the server gets an error instead of the end of the stream.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: an open socket, and a valid value of the given size.
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

/// Returns a request for the command line with a head of `bytes` bytes.
pub fn head_of(bytes: usize) -> Vec<u8> {
    let mut head = b"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    head.resize(bytes - 4, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
}
