//! A client of HTTP/1.1 for one request on one connection.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::address::Address;
use super::settings::{Content, Header};

/// Time limit of a connection attempt to one address of the server.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// Maximum length of the head of an answer, in bytes.
const LONGEST_HEAD: usize = 16 << 10;

/// The length of the body of an answer that is read, in bytes.
const READ_BODY: usize = 4 << 10;

/// Time limit for the body of an answer whose head says enough.
const BODY_TIME: Duration = Duration::from_secs(1);

/// The length of a server's text in an error, in characters.
const LONGEST_REASON: usize = 200;

/// The reason why a profile was not sent.
#[derive(Debug)]
pub(super) struct Failure {
    reason: String,
    /// Whether the same request may succeed later.
    pub(super) is_temporary: bool,
    /// The time after which the server expects the request again.
    pub(super) retry_after: Option<Duration>,
}

impl Failure {
    /// Returns a failure that repeating the request does not change.
    pub(super) fn lasting(reason: String) -> Self {
        Self {
            reason,
            is_temporary: false,
            retry_after: None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let reason = match error.kind() {
            // Two kinds, by system.
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "no answer in time".to_owned(),
            _ => error.to_string(),
        };
        Self {
            reason,
            is_temporary: true,
            retry_after: None,
        }
    }
}

/// Sends a request, and returns the beginning of the body of a successful answer.
///
/// # Errors
/// [`Failure`], at `deadline` at the latest, except for the time to resolve the server's name.
pub(super) fn send(
    address: &Address,
    headers: &[Header],
    content: &Content,
    deadline: Instant,
) -> Result<Vec<u8>, Failure> {
    let mut connection = Connection::open(address, deadline)?;
    connection.write(head(address, headers, content).as_bytes())?;
    // A server that refuses a large request may answer, and end the connection, before its end.
    let written = connection.write(&content.body);
    match connection.answer() {
        Ok(answer) => answer.result(),
        Err(error) => Err(written.err().unwrap_or(error).into()),
    }
}

fn head(address: &Address, headers: &[Header], content: &Content) -> String {
    let mut head = format!(
        "POST {}{} HTTP/1.1\r\nHost: {}\r\nUser-Agent: plimsoll/{}\r\nContent-Length: {}\r\nConnection: close\r\n",
        address.path,
        content.path,
        address.authority,
        env!("CARGO_PKG_VERSION"),
        content.body.len(),
    );
    let own = content.headers.iter().map(|(name, value)| (*name, value));
    let others = headers.iter().map(|header| (&*header.name, &header.value));
    for (name, value) in own.chain(others) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head
}

/// A connection, all of whose operations end at the deadline.
struct Connection {
    stream: TcpStream,
    deadline: Instant,
}

impl Connection {
    /// Connects to the first address of the server that answers.
    fn open(address: &Address, deadline: Instant) -> io::Result<Self> {
        let mut last = None;
        for socket in (&*address.host, address.port).to_socket_addrs()? {
            let time = remaining(deadline)?.min(CONNECT_TIME);
            match TcpStream::connect_timeout(&socket, time) {
                Ok(stream) => return Ok(Self { stream, deadline }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into()))
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream
                .set_write_timeout(Some(remaining(self.deadline)?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads some bytes; none at the end of the stream.
    fn read(&mut self, to: &mut Vec<u8>) -> io::Result<usize> {
        let mut chunk = [0; 2048];
        loop {
            self.stream
                .set_read_timeout(Some(remaining(self.deadline)?))?;
            match self.stream.read(&mut chunk) {
                Ok(read) => {
                    to.extend_from_slice(&chunk[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the answer. Its body is the part that arrives in time.
    fn answer(&mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        let (mut answer, length) = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                bytes.drain(..end + 4);
                let answer = Answer::parse(&head)
                    .ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
                // Interim answers precede the answer.
                if answer.status / 100 != 1 {
                    let length = header(&head, "content-length").and_then(|text| text.parse().ok());
                    break (answer, length);
                }
                continue;
            }
            if bytes.len() > LONGEST_HEAD {
                return Err(io::Error::other(
                    "the answer is not HTTP: its head has no end",
                ));
            }
            if self.read(&mut bytes)? == 0 {
                return Err(io::Error::other(
                    "the server closed the connection without an answer",
                ));
            }
        };
        let length = if answer.status == 204 {
            0
        } else {
            length.unwrap_or(READ_BODY)
        };
        self.deadline = self.deadline.min(Instant::now() + BODY_TIME);
        // The head decides, so an error here ends only the body.
        while bytes.len() < length.min(READ_BODY) && matches!(self.read(&mut bytes), Ok(1..)) {}
        bytes.truncate(length.min(READ_BODY));
        answer.body = bytes;
        Ok(answer)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A child of a fork may have a copy of the descriptor, so closing it may not suffice. A failure
        // means that the connection has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Returns the time to the deadline.
///
/// # Errors
/// [`ErrorKind::TimedOut`] if it has passed.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    match remaining.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => Ok(remaining),
    }
}

struct Answer {
    status: u16,
    /// The time after which the server expects the request again.
    retry_after: Option<Duration>,
    location: Option<String>,
    body: Vec<u8>,
}

impl Answer {
    /// Parses the head. `None` if it is not an answer of HTTP/1.
    fn parse(head: &str) -> Option<Self> {
        let line = head.split("\r\n").next()?.strip_prefix("HTTP/1.")?;
        let mut words = line.split(' ');
        let (_version, status) = (words.next()?, words.next()?);
        let is_number = status.len() == 3 && status.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = header(head, "retry-after").and_then(|text| text.parse().ok());
        Some(Self {
            status: status.parse().ok().filter(|_| is_number)?,
            retry_after: seconds.map(Duration::from_secs),
            location: header(head, "location").map(str::to_owned),
            body: Vec::new(),
        })
    }

    fn result(self) -> Result<Vec<u8>, Failure> {
        let text = String::from_utf8_lossy(&self.body);
        let text: String = text.trim().chars().take(LONGEST_REASON).collect();
        let reason = match (self.status, self.location) {
            (200..300, _) => return Ok(self.body),
            (300..400, Some(location)) => {
                let location: String = location.chars().take(LONGEST_REASON).collect();
                format!(
                    "status {}: redirects are not followed: {location}",
                    self.status
                )
            }
            (status, _) if text.is_empty() => format!("status {status}"),
            (status, _) => format!("status {status}: {text}"),
        };
        Err(Failure {
            reason,
            // The server is busy, or a proxy does not reach it.
            is_temporary: matches!(self.status, 408 | 429 | 500..),
            retry_after: self.retry_after,
        })
    }
}

/// Returns the value of the first header with that name in lower case.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.split("\r\n").skip(1);
    lines.find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
