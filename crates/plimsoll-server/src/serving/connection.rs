//! A connection and its state.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use plimsoll_sys::os::bell::{self, ENDED};

use super::outgoing::Outgoing;
use super::socket::Stream;
use crate::access::{Access, Refused};
use crate::answer::Answer;
use crate::head::{self, Head, LONGEST_BODY};
use crate::pages::{Effort, Request};

/// Time limit for a client to send its request.
const READ_TIME: Duration = Duration::from_secs(10);

/// Time limit for a client to close the connection after the answer.
const LINGER_TIME: Duration = Duration::from_millis(100);

/// Number of reads from a connection before others have their turn.
const READS_PER_TURN: usize = 8;

/// A connection of a client. `P` is the first half of an answer.
pub(super) struct Connection<P> {
    pub(super) stream: Stream,
    /// The address of the client; `None` if the server listens at a path.
    peer: Option<SocketAddr>,
    pub(super) state: State<P>,
    /// Whether the answer has a body: not for `HEAD`.
    pub(super) with_body: bool,
    /// Set when the client is gone, for the thread that computes the answer.
    pub(super) is_gone: Arc<AtomicBool>,
}

/// Limits the system's memory for bytes that a client does not read, which otherwise grows to some
/// MiB.
fn limit_buffer(stream: &Stream) {
    // The system doubles this size for its own bookkeeping.
    let size: libc::c_int = 128 << 10;
    // SAFETY: `stream` is an open socket, and the value is a `c_int` of the size given. After a
    // failure, the system's limit applies.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const size).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}

/// The state of a connection, named after the event for which it waits.
pub(super) enum State<P> {
    /// The rest of the request's head, or of a body that the page reads.
    Reading {
        received: Vec<u8>,
        /// The head, once it is complete.
        head: Option<Head>,
        until: Instant,
    },
    /// A thread that computes the answer, or a place for it.
    Computing(Effort),
    /// The end of the time that a difference covers.
    Waiting { due: Instant, pending: P },
    /// Space in the socket's buffer for the rest of the answer.
    Writing(Outgoing),
    /// The end of the connection, which the client closes after reading the answer.
    Lingering { until: Instant },
}

/// Returns the length of the body of a request whose page reads it.
fn body_length(head: &Head) -> Result<usize, Refused> {
    match head.body_length {
        None => Err((411, "Length Required".into())),
        Some(length) if length > LONGEST_BODY => Err((413, "Content Too Large".into())),
        Some(length) => Ok(length),
    }
}

/// The reason why a request gets no page.
pub(super) enum End {
    /// The client is gone.
    Gone,
    Refused(Refused),
}

impl<P> Connection<P> {
    pub(super) fn new(stream: Stream, peer: Option<SocketAddr>, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking()?;
        limit_buffer(&stream);
        Ok(Self {
            stream,
            peer,
            state: State::Reading {
                received: Vec::new(),
                head: None,
                until: now + READ_TIME,
            },
            with_body: true,
            is_gone: Arc::default(),
        })
    }

    /// Returns the events for which the connection waits. Errors and the end of both directions are
    /// always included.
    pub(super) fn events(&self) -> libc::c_short {
        match &self.state {
            State::Reading { .. } | State::Lingering { .. } => libc::POLLIN,
            // A client that shuts down its sending direction may still read, and gets its answer.
            // If the answer takes long, the client counts as gone, as in Go.
            State::Computing(Effort::Exclusive) | State::Waiting { .. } => ENDED,
            State::Computing(_) => 0,
            State::Writing(_) => libc::POLLOUT,
        }
    }

    /// Reports whether the client has closed its direction, or the connection.
    pub(super) fn has_end(&self) -> bool {
        let mut entry = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: ENDED,
            revents: 0,
        };
        bell::has_event(&mut entry)
    }

    /// Returns the time at which the connection has to proceed without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Reading { until, .. } | State::Lingering { until } => Some(*until),
            State::Computing(_) => None,
            State::Waiting { due, .. } => Some(*due),
            State::Writing(outgoing) => Some(outgoing.deadline()),
        }
    }

    /// Reads the available bytes of the request. Returns `Ok(None)` if the request is incomplete. Reads the
    /// body if `reads_body` returns true for the request.
    pub(super) fn read_request(
        &mut self,
        access: &Access,
        reads_body: impl Fn(&Request) -> bool,
    ) -> Result<Option<Request>, End> {
        let State::Reading { received, head, .. } = &mut self.state else {
            return Ok(None);
        };
        let mut chunk = [0; 2048];
        for _ in 0..READS_PER_TURN {
            let read = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(End::Gone),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(End::Gone),
            };
            received.extend_from_slice(&chunk[..read]);
            if head.is_none() {
                let parsed = head::parse(received, read, access, self.peer).transpose();
                *head = parsed.map_err(End::Refused)?;
            }
            let Some(head) = head else {
                continue;
            };
            if !reads_body(&head.request) {
                return Ok(Some(head.request.clone()));
            }
            let length = body_length(head).map_err(End::Refused)?;
            if let Some(body) = received.get(head.length..head.length + length) {
                let mut request = head.request.clone();
                request.body = body.to_vec();
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// Begins to send an answer. Returns whether the connection remains open.
    pub(super) fn begin_answer(&mut self, answer: Answer, now: Instant) -> bool {
        self.state = State::Writing(Outgoing::new(answer, self.with_body, now));
        self.write(now)
    }

    /// Sends more of the answer, and then its end. Returns whether the connection remains open.
    pub(super) fn write(&mut self, now: Instant) -> bool {
        let State::Writing(outgoing) = &mut self.state else {
            return true;
        };
        match outgoing.write(&mut self.stream) {
            Ok(false) => true,
            Ok(true) if self.stream.end_answer().is_ok() => {
                let until = now + LINGER_TIME;
                self.state = State::Lingering { until };
                true
            }
            Ok(true) | Err(_) => false,
        }
    }

    /// Reads and drops bytes that the client still sends: closing a socket with unread bytes makes
    /// the system discard the answer. Returns whether the connection remains open.
    pub(super) fn linger(&mut self) -> bool {
        let mut rest = [0; 4096];
        for _ in 0..READS_PER_TURN {
            match self.stream.read(&mut rest) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}
