//! A connection, and what it waits for.

use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::super::access::Names;
use super::super::answer::Answer;
use super::super::pages::Effort;
use super::super::pprof::Delta;
use super::head::{self, Received, Refusal};
use super::outgoing::Outgoing;

/// How long a client may take to send its request.
const READ_TIME: Duration = Duration::from_secs(10);

/// How long a client may take to close after the answer.
const LINGER_TIME: Duration = Duration::from_millis(100);

/// How many times a connection is read from before others have their turn.
const READS_PER_TURN: usize = 8;

/// A connection of a client.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) state: State,
    /// Whether the request is one for the body of a page.
    pub(super) with_body: bool,
    /// Set when the client is gone, for the thread that computes the answer.
    pub(super) is_gone: Arc<AtomicBool>,
}

/// Limits the memory that the system takes for bytes that a client does not read, which grows to
/// some MiB by itself.
fn limit_buffer(stream: &TcpStream) {
    // The system doubles it for its own bookkeeping.
    let size: libc::c_int = 128 << 10;
    // SAFETY: `stream` is an open socket, and the value is a `c_int` of the size given. A failure
    // leaves the limit of the system.
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

/// What a connection waits for.
pub(super) enum State {
    /// The rest of the request's head.
    Reading { head: Vec<u8>, until: Instant },
    /// A thread that computes the answer, or a place for that.
    Computing(Effort),
    /// The end of the time that a difference covers.
    Waiting { due: Instant, delta: Delta },
    /// That the client takes the answer.
    Writing(Outgoing),
    /// That the client closes, which it does once it has read the answer.
    Lingering { until: Instant },
}

/// A request that is over before it has an answer.
pub(super) enum End {
    /// The client is gone.
    Gone,
    Refused(Refusal),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        limit_buffer(&stream);
        Ok(Self {
            stream,
            state: State::Reading {
                head: Vec::new(),
                until: now + READ_TIME,
            },
            with_body: true,
            is_gone: Arc::default(),
        })
    }

    /// The events that it waits for. An error and the end of both directions are always among them.
    pub(super) fn events(&self) -> libc::c_short {
        match &self.state {
            State::Reading { .. } | State::Lingering { .. } => libc::POLLIN,
            // A client that closes its direction may still read, and gets its answer, except where
            // that would take long: there, as in Go, it is gone.
            State::Computing(Effort::Collect) | State::Waiting { .. } => libc::POLLRDHUP,
            State::Computing(_) => 0,
            State::Writing(_) => libc::POLLOUT,
        }
    }

    /// Whether the client has closed its direction, or the connection.
    pub(super) fn has_end(&self) -> bool {
        let mut entry = libc::pollfd {
            fd: self.stream.as_raw_fd(),
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: `entry` is one valid entry, and the call does not wait.
        let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
        ready > 0
    }

    /// When it has to go on without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Reading { until, .. } | State::Lingering { until } => Some(*until),
            State::Computing(_) => None,
            State::Waiting { due, .. } => Some(*due),
            State::Writing(outgoing) => Some(outgoing.deadline()),
        }
    }

    /// Reads what is there of the request; `Ok(None)` if that is not all of it.
    pub(super) fn read_request(&mut self, names: &Names) -> Result<Option<Received>, End> {
        let State::Reading { head, .. } = &mut self.state else {
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
            head.extend_from_slice(&chunk[..read]);
            if let Some(parsed) = head::parse(head, read, names) {
                return parsed.map(Some).map_err(End::Refused);
            }
        }
        Ok(None)
    }

    /// Begins to send an answer. Returns whether the connection goes on.
    pub(super) fn begin_answer(&mut self, answer: Answer, now: Instant) -> bool {
        self.state = State::Writing(Outgoing::new(answer, self.with_body, now));
        self.write(now)
    }

    /// Sends more of the answer, and then its end. Returns whether the connection goes on.
    pub(super) fn write(&mut self, now: Instant) -> bool {
        let State::Writing(outgoing) = &mut self.state else {
            return true;
        };
        match outgoing.write(&mut self.stream) {
            Ok(false) => true,
            Ok(true) if self.stream.shutdown(Shutdown::Write).is_ok() => {
                let until = now + LINGER_TIME;
                self.state = State::Lingering { until };
                true
            }
            Ok(true) | Err(_) => false,
        }
    }

    /// Reads and drops what the client still sends: closing a socket with unread bytes makes the
    /// system discard the answer. Returns whether the connection goes on.
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
