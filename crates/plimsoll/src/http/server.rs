//! A small server for the pages, on threads of Plimsoll's own.
//!
//! One thread accepts; each request gets a thread, of which there are at most [`MOST_REQUESTS`];
//! one more is told so and sent away. Every read and write has a deadline, so that a client which
//! stops in the middle costs a thread for a while and no more. One request for each connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Request, Response};
use crate::os::bell::Bell;
use crate::os::closed_in_forks;
use crate::own;
use crate::own_thread::{self, OwnThread};

/// Requests that are answered at once.
const MOST_REQUESTS: usize = 8;

/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 * 1024;

/// The most header lines of a request.
const MOST_HEADERS: usize = 100;

/// How long a client may take to send its request.
const READ_TIME: Duration = Duration::from_secs(10);

/// How long a client may take to read the answer.
const WRITE_TIME: Duration = Duration::from_secs(120);

/// How long one that is sent away may take to read that.
const REFUSAL_TIME: Duration = Duration::from_millis(100);

/// How long nothing is accepted after the system could not: there are too many descriptors, or
/// there is no memory, and neither passes at once.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that is running. It stops when this is dropped; requests under way are answered to the
/// end.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
}

/// What the server's threads share.
#[derive(Debug)]
struct Shared {
    /// Requests that are being answered.
    requests: AtomicUsize,
    stopped: AtomicBool,
    bell: Bell,
}

/// One of the places for requests; free again when it is dropped, even by a panic.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self(Arc::clone(shared));
        let taken = shared.requests.fetch_add(1, Ordering::AcqRel);
        (taken < MOST_REQUESTS).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Serves the pages at an address, such as `127.0.0.1:6060`; port 0 takes any that is free.
///
/// # Errors
/// What the system says, with the address: it is not an address, it is in use, it must not be used;
/// or there is no thread to be had.
pub fn serve(address: impl ToSocketAddrs + std::fmt::Display) -> io::Result<Server> {
    let _own = own::scope();
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot serve profiles at {address}: {error}"),
        )
    };
    let listener = TcpListener::bind(&address).map_err(named)?;
    closed_in_forks::register(listener.as_fd());
    listener.set_nonblocking(true).map_err(named)?;
    let address = listener.local_addr().map_err(named)?;
    let bell = Bell::new().map_err(named)?;
    let shared = Arc::new(Shared {
        requests: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        bell,
    });
    let accepting = Arc::clone(&shared);
    let thread = own_thread::spawn(c"plimsoll-http", move || accept(&listener, &accepting))
        .map_err(named)?;
    Ok(Server {
        address,
        shared,
        thread: Some(thread),
    })
}

impl Server {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _own = own::scope();
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

/// Accepts until it is stopped.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.stopped.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) => match Place::take(shared) {
                Some(place) => answer(stream, place),
                None => refuse(stream),
            },
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => shared.bell.wait(Some(listener.as_fd())),
                // The client has gone before it was its turn.
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => std::thread::sleep(PAUSE),
            },
        }
    }
}

fn answer(stream: TcpStream, place: Place) {
    let thread = own_thread::spawn(c"plimsoll-answer", move || {
        let _place = place;
        serve_one(stream);
    });
    // Without a thread, the connection is closed with the closure; the next one may fare better.
    drop(thread);
}

/// Tells a client that there are too many, without waiting long for it.
fn refuse(mut stream: TcpStream) {
    let deadline = Instant::now() + REFUSAL_TIME;
    let response = plain(503, "Service Unavailable: too many requests at once");
    // A request that is not read would make the system throw the answer away.
    let mut request = [0; 4096];
    let read = read_some(&mut stream, &mut request, deadline).unwrap_or(0);
    let with_body = !request[..read].starts_with(b"HEAD ");
    let _ = send(&mut stream, &response, with_body, deadline);
    linger(&mut stream, deadline);
}

fn serve_one(mut stream: TcpStream) {
    let response = match read_request(&mut stream, Instant::now() + READ_TIME) {
        Ok(request) => {
            let cancelled = || has_gone(&stream);
            let response = Request::new(&request.method, &request.path, &request.query)
                .accept(&request.accept)
                .cancelled(&cancelled)
                .answer();
            (response, request.method != "HEAD")
        }
        Err(Refusal::Gone) => return,
        Err(Refusal::Status(status, reason)) => (plain(status, reason), true),
    };
    let deadline = Instant::now() + WRITE_TIME;
    // The client may go away at any time: there is nobody to tell.
    if send(&mut stream, &response.0, response.1, deadline).is_ok() {
        linger(&mut stream, deadline.min(Instant::now() + REFUSAL_TIME));
    }
}

/// What a client sent.
struct Received {
    method: String,
    path: String,
    query: String,
    accept: String,
}

/// Why a request is not answered.
enum Refusal {
    /// There is nobody who would read an answer.
    Gone,
    Status(u16, &'static str),
}

fn read_request(stream: &mut TcpStream, deadline: Instant) -> Result<Received, Refusal> {
    let mut head = Vec::with_capacity(1024);
    let mut chunk = [0; 1024];
    loop {
        match read_some(stream, &mut chunk, deadline) {
            Ok(0) => return Err(Refusal::Gone),
            Ok(read) => head.extend_from_slice(&chunk[..read]),
            Err(error) if is_timeout(&error) => {
                return Err(Refusal::Status(408, "Request Timeout"));
            }
            Err(_) => return Err(Refusal::Gone),
        }
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => {
                return Received::new(&request);
            }
            Ok(httparse::Status::Partial) if head.len() < LONGEST_HEAD => {}
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Refusal::Status(431, "Request Header Fields Too Large"));
            }
            Err(_) => return Err(Refusal::Status(400, "Bad Request")),
        }
    }
}

impl Received {
    fn new(parsed: &httparse::Request<'_, '_>) -> Result<Self, Refusal> {
        let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
            return Err(Refusal::Status(400, "Bad Request"));
        };
        // A proxy's request names the host first.
        let target = match target.strip_prefix("http://") {
            Some(rest) => rest.find('/').map_or("/", |slash| &rest[slash..]),
            None => target,
        };
        let target = target.split('#').next().unwrap_or("");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = parsed.headers.iter();
        let accept: Vec<_> = headers
            .filter(|header| header.name.eq_ignore_ascii_case("accept"))
            .map(|header| String::from_utf8_lossy(header.value))
            .collect();
        Ok(Self {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            accept: accept.join(","),
        })
    }
}

fn plain(status: u16, reason: &str) -> Response {
    let headers = vec![
        ("X-Content-Type-Options", "nosniff".into()),
        ("Content-Type", "text/plain; charset=utf-8".into()),
    ];
    Response {
        status,
        headers,
        body: format!("{reason}\n").into_bytes(),
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

fn send(
    stream: &mut TcpStream,
    response: &Response,
    with_body: bool,
    deadline: Instant,
) -> io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} {}\r\n",
        response.status,
        reason(response.status)
    );
    for (name, value) in &response.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!(
        "Content-Length: {}\r\nConnection: close\r\n\r\n",
        response.body.len()
    ));
    write_all(stream, head.as_bytes(), deadline)?;
    if with_body {
        write_all(stream, &response.body, deadline)
    } else {
        Ok(())
    }
}

fn read_some(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(time_left(deadline)?))?;
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(deadline)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Ends the connection so that the client gets to read the answer: nothing more is sent, and what
/// it still sends is read for a moment.
fn linger(stream: &mut TcpStream, deadline: Instant) {
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut rest = [0; 4096];
    while let Ok(read) = read_some(stream, &mut rest, deadline) {
        if read == 0 {
            return;
        }
    }
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

/// Whether the client has closed the connection. What it may have sent before that, and nobody has
/// read, does not hide it.
fn has_gone(stream: &TcpStream) -> bool {
    let mut state = libc::pollfd {
        fd: stream.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one valid entry; does not wait.
    let ready = unsafe { libc::poll(&raw mut state, 1, 0) };
    ready > 0
}
