//! A server, what it is asked, and what it may be asked for at once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use plimsoll::http::{Server, serve};

use crate::client::{Answer, connect, wait_for};
pub use crate::client::{exchange, request};

/// As many requests as wait for the end of `seconds=` at once.
pub const WAITING: usize = 8;

/// The largest value of `seconds`.
pub const HOUR: u64 = 3600;

pub const TEXT: &str = "text/plain; charset=utf-8";

pub const HTML: &str = "text/html; charset=utf-8";

pub const BINARY: &str = "application/octet-stream";

pub fn server() -> (Server, SocketAddr) {
    let server = serve("127.0.0.1:0").expect("there is a free port");
    let address = server.address();
    (server, address)
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
    let request =
        format!("GET /debug/pprof/heap?seconds={seconds} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Takes all places for requests that wait, for as long as the returned connections are open.
pub fn take_all_waiting(address: SocketAddr) -> Vec<TcpStream> {
    let mut taken = Vec::new();
    wait_for("all places", || {
        taken.resize_with(WAITING, || start_delta(address, HOUR - 1));
        // It ends last, so it is refused when the others wait, and only then.
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

/// Whether nothing was answered so far.
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
    let mut head = b"GET /debug/pprof/cmdline HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    head.resize(bytes - 4, b'x');
    head.extend_from_slice(b"\r\n\r\n");
    head
}
