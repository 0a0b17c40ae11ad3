//! An answer on its way out.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use super::super::answer::{Answer, Body};
use crate::export::TextPage;
use crate::own_time;

/// How much of a long text is formatted at a time, in bytes.
const CHUNK: usize = 32 << 10;

/// How long any answer may take, and how many bytes a second it takes beyond that.
const GRACE: Duration = Duration::from_secs(20);
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// An answer that is being sent.
pub(super) struct Outgoing {
    /// Bytes of which the first `at` are sent.
    bytes: Vec<u8>,
    at: usize,
    /// What comes after them.
    rest: Body,
    begun: Instant,
    sent: u64,
}

impl Outgoing {
    /// The answer as it is sent, without its body if only the head was asked for.
    pub(super) fn new(answer: Answer, with_body: bool, now: Instant) -> Self {
        let length = match &answer.body {
            Body::Bytes(bytes) => bytes.len(),
            Body::Text(page) => page.len(),
        };
        let status = answer.status;
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!(
            "Content-Length: {length}\r\nConnection: close\r\n\r\n"
        ));
        Self {
            bytes: head.into_bytes(),
            at: 0,
            rest: if with_body {
                answer.body
            } else {
                Body::Bytes(Vec::new())
            },
            begun: now,
            sent: 0,
        }
    }

    /// Writes as much as the other side takes, but of a long text a chunk at most, so that other
    /// connections have their turn. Returns whether all is written.
    ///
    /// # Errors
    /// The other side is gone.
    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let mut formatted = 0;
        loop {
            if self.at == self.bytes.len() {
                let is_text = matches!(self.rest, Body::Text(_));
                if is_text && formatted > 0 {
                    return Ok(false);
                }
                self.bytes = self.next();
                self.at = 0;
                formatted += usize::from(is_text);
                if self.bytes.is_empty() {
                    return Ok(true);
                }
            }
            match to.write(&self.bytes[self.at..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.at += written;
                    self.sent += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// The bytes behind those that are sent; none at the end.
    fn next(&mut self) -> Vec<u8> {
        match &mut self.rest {
            Body::Bytes(bytes) => std::mem::take(bytes),
            Body::Text(page) => format_chunk(page),
        }
    }

    /// When the client has been too slow. The connection with the earliest is the slowest.
    pub(super) fn deadline(&self) -> Instant {
        self.begun + GRACE + Duration::from_secs(self.sent / MIN_BYTES_PER_SECOND)
    }

    /// The memory that it holds, in bytes, without what a long text is formatted from.
    pub(super) fn held(&self) -> usize {
        let rest = match &self.rest {
            Body::Bytes(bytes) => bytes.len(),
            Body::Text(_) => 0,
        };
        self.bytes.len() + rest
    }
}

fn format_chunk(page: &mut TextPage) -> Vec<u8> {
    let _time = own_time::measure();
    page.chunk(CHUNK)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
