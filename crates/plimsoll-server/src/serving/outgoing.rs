//! An answer that is being sent.

use std::io::{self, ErrorKind, Write};
use std::time::{Duration, Instant};

use crate::answer::{Answer, Body};

/// Size of the chunks in which a long text is formatted, in bytes.
const CHUNK: usize = 32 << 10;

/// Time limit for any answer, and the minimum rate in bytes per second beyond it.
const GRACE: Duration = Duration::from_secs(20);
const MIN_BYTES_PER_SECOND: u64 = 16 << 10;

/// An answer that is being sent.
pub(super) struct Outgoing {
    /// A part of the answer, of which the first `at` bytes are sent.
    part: Body,
    at: usize,
    /// The rest of the answer.
    rest: Option<Body>,
    begun: Instant,
    sent: u64,
}

impl Outgoing {
    /// Formats the head of an answer. `with_body` is false if only the head was requested.
    pub(super) fn new(answer: Answer, with_body: bool, now: Instant) -> Self {
        let length = answer.body.len();
        let status = answer.status;
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in &answer.headers {
            // A line end in a value would begin another header.
            if !value.contains(|character: char| character.is_control()) {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        head.push_str(&format!(
            "Content-Length: {length}\r\nConnection: close\r\n\r\n"
        ));
        Self {
            part: Body::Bytes(head.into_bytes()),
            at: 0,
            rest: with_body.then_some(answer.body),
            begun: now,
            sent: 0,
        }
    }

    /// Writes as much as the client accepts, but at most one chunk of a long text, so that other
    /// connections have their turn. Returns whether everything is written.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) fn write(&mut self, to: &mut impl Write) -> io::Result<bool> {
        let mut formatted = 0;
        loop {
            let rest = &bytes(&self.part)[self.at..];
            if rest.is_empty() {
                let is_text = matches!(self.rest, Some(Body::Text(_)));
                if is_text && formatted > 0 {
                    return Ok(false);
                }
                self.part = self.next();
                self.at = 0;
                formatted += usize::from(is_text);
                if bytes(&self.part).is_empty() {
                    return Ok(true);
                }
                continue;
            }
            match to.write(rest) {
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

    /// Returns the next bytes to be sent; none at the end.
    fn next(&mut self) -> Body {
        if let Some(Body::Text(text)) = &mut self.rest {
            return Body::Bytes(text.chunk(CHUNK));
        }
        self.rest.take().unwrap_or(Body::Static(&[]))
    }

    /// Returns the time at which the client is too slow. The connection with the earliest is the
    /// slowest.
    pub(super) fn deadline(&self) -> Instant {
        self.begun + GRACE + Duration::from_secs(self.sent / MIN_BYTES_PER_SECOND)
    }

    /// Returns the memory that it holds, in bytes, without bytes that others share, and without the
    /// source of a long text.
    pub(super) fn held(&self) -> usize {
        let parts = [Some(&self.part), self.rest.as_ref()];
        let own = parts.into_iter().flatten().map(|part| match part {
            Body::Bytes(bytes) => bytes.len(),
            Body::Static(_) | Body::Shared(_) | Body::Text(_) => 0,
        });
        own.sum()
    }
}

/// Returns the bytes of a part that is sent as a whole.
fn bytes(part: &Body) -> &[u8] {
    match part {
        Body::Bytes(bytes) => bytes,
        Body::Static(bytes) => bytes,
        Body::Shared(bytes) => bytes,
        // Only its chunks are sent.
        Body::Text(_) => &[],
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}
