//! The thread that does all input and output.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_sys::os::own_threads::{self, MustEnd};

use super::connection::{Connection, End, State};
use super::socket::Listener;
use super::work::{Control, Job, Workers};
use crate::access::Access;
use crate::answer::{Answer, Step};
use crate::pages::{Effort, Pages, Request};

/// Maximum numbers of connections in a state: see the [module above](super).
const MAX_READING: usize = 32;
const MAX_WAITING: usize = 8;
const MAX_WRITING: usize = 24;
const MAX_LINGERING: usize = 16;

/// Maximum memory of unsent answers, in bytes.
const MAX_HELD: usize = 64 << 20;

/// Number of connections accepted before the others have their turn.
const ACCEPTED_PER_TURN: usize = 16;

/// The pause after a failure to accept: the system lacks descriptors or memory, and neither changes
/// at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for which the drop of a server waits for answers.
const DRAIN_TIME: Duration = Duration::from_secs(2);

const TOO_MANY: &str = "Service Unavailable: too many requests at once";

/// All connections of a server. Everything that a client can delay is done here without blocking.
pub(super) struct Reactor<P: Pages> {
    /// `None` once the server was dropped.
    listener: Option<Listener>,
    /// The time until which a dropped server waits for answers.
    drains_until: Option<Instant>,
    /// The time from which it accepts again after an error.
    accepts_from: Option<Instant>,
    access: Access,
    /// Connections by number: the oldest first.
    connections: BTreeMap<u64, Connection<P::Pending>>,
    accepted: u64,
    workers: Workers<P>,
    control: Arc<Control>,
}

impl<P: Pages> Reactor<P> {
    pub(super) fn new(
        listener: Listener,
        access: Access,
        pages: Arc<P>,
        control: Arc<Control>,
    ) -> Self {
        Self {
            listener: Some(listener),
            drains_until: None,
            accepts_from: None,
            access,
            connections: BTreeMap::new(),
            accepted: 0,
            workers: Workers::new(pages, Arc::clone(&control)),
            control,
        }
    }

    /// Serves until the server is stopped, and then for at most [`DRAIN_TIME`] until all answers are
    /// sent that do not wait. Returns the rest if requests are under way; a second call serves these
    /// to the end. Ends at once if the thread must end.
    pub(super) fn run(mut self) -> Option<Self> {
        let served = self.serve();
        (served.is_ok() && !self.connections.is_empty()).then_some(self)
    }

    fn serve(&mut self) -> Result<(), MustEnd> {
        if self.listener.is_some() {
            while !self.control.is_stopped() {
                self.turn()?;
            }
            self.listener = None;
            let until = Instant::now() + DRAIN_TIME;
            self.drains_until = Some(until);
            while self.is_answering() && Instant::now() < until {
                self.turn()?;
            }
            self.drains_until = None;
        } else {
            while !self.connections.is_empty() {
                self.turn()?;
            }
        }
        Ok(())
    }

    /// Reports whether an answer is computed or sent. A request with `seconds=` that waits for its
    /// end does not count, nor does a client that sends no request.
    fn is_answering(&self) -> bool {
        let mut all = self.connections.values();
        all.any(|connection| matches!(connection.state, State::Computing(_) | State::Writing(_)))
    }

    fn turn(&mut self) -> Result<(), MustEnd> {
        self.take_done();
        let now = Instant::now();
        self.expire(now);
        self.workers.dispatch();
        if self.connections.is_empty() {
            self.workers.pages().rest();
        }
        let ready = self.wait(now)?;
        let now = Instant::now();
        for (number, events) in ready {
            match number {
                Some(number) => self.advance(number, events, now),
                None => self.accept(now),
            }
        }
        Ok(())
    }

    /// Waits for the next event. Returns the connections that have events, and `None` for the
    /// listener.
    fn wait(&mut self, now: Instant) -> Result<Vec<(Option<u64>, libc::c_short)>, MustEnd> {
        self.accepts_from = self.accepts_from.filter(|from| *from > now);
        let mut numbers = Vec::with_capacity(self.connections.len() + 1);
        let mut entries = vec![self.control.bell.poll_entry()];
        let mut add = |number, fd, events| {
            numbers.push(number);
            entries.push(libc::pollfd {
                fd,
                events,
                revents: 0,
            });
        };
        for (number, connection) in &self.connections {
            let fd = connection.stream.as_raw_fd();
            add(Some(*number), fd, connection.events());
        }
        if let (Some(listener), None) = (&self.listener, self.accepts_from) {
            add(None, listener.as_raw_fd(), libc::POLLIN);
        }
        let deadlines = self.connections.values().filter_map(Connection::deadline);
        let next = deadlines
            .chain(self.accepts_from)
            .chain(self.drains_until)
            .min();
        let time = next.map(|next| next.saturating_duration_since(Instant::now()));
        let bell = &self.control.bell;
        own_threads::wait_with(bell, || bell.poll(&mut entries, time))?;
        let events = entries[1..].iter().map(|entry| entry.revents);
        let ready = numbers.into_iter().zip(events);
        Ok(ready.filter(|(_, events)| *events != 0).collect())
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_PER_TURN {
            let Some(listener) = &self.listener else {
                return;
            };
            match listener.accept() {
                Ok((stream, peer)) => {
                    if let Ok(connection) = Connection::new(stream, peer, now) {
                        self.accepted += 1;
                        let number = self.accepted;
                        self.connections.insert(number, connection);
                        // The request has mostly arrived already.
                        self.advance(number, libc::POLLIN, now);
                        self.limit_reading(now);
                    }
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client closed the connection before it was accepted.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    // Clients find another program there, or none.
                    _ if listener.is_lost() => {
                        self.listener = None;
                        return;
                    }
                    _ => {
                        self.accepts_from = Some(now + PAUSE);
                        return;
                    }
                },
            }
        }
    }

    /// Proceeds with a connection that has events.
    fn advance(&mut self, number: u64, events: libc::c_short, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let has_ended = events & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
        let goes_on = match &connection.state {
            State::Reading { .. } => match connection.read_request(&self.access, |request| {
                self.workers.pages().reads_body(request)
            }) {
                Ok(None) => true,
                Ok(Some(request)) => return self.queue(number, request, now),
                Err(End::Gone) => false,
                Err(End::Refused((status, text))) => {
                    return self.answer(number, refusal(status, &text), now);
                }
            },
            State::Computing(_) | State::Waiting { .. } => false,
            State::Writing(_) if has_ended => false,
            State::Writing(_) => connection.write(now),
            State::Lingering { .. } => connection.linger(),
        };
        if !goes_on {
            self.close(number);
        } else if matches!(connection.state, State::Lingering { .. }) {
            self.limit_lingering();
        }
    }

    fn queue(&mut self, number: u64, request: Request, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        connection.with_body = request.method != "HEAD";
        let effort = match &*request.method {
            "GET" | "HEAD" => self.workers.pages().effort(&request),
            _ if self.workers.pages().reads_body(&request) => self.workers.pages().effort(&request),
            // Refused, whatever the path is.
            _ => Effort::Short,
        };
        connection.state = State::Computing(effort);
        let is_gone = Arc::clone(&connection.is_gone);
        for queued in self.workers.queued_if_full(effort) {
            self.close_if_gone(queued);
        }
        let job = Job::Begin(request);
        let dropped = self.workers.push(number, effort, job, &is_gone);
        if let Some(dropped) = dropped {
            self.answer(dropped, Answer::line(503, TOO_MANY), now);
        }
        self.workers.dispatch();
    }

    /// Proceeds with connections whose answers were computed.
    fn take_done(&mut self) {
        for done in self.workers.take_done() {
            let now = Instant::now();
            let number = done.connection;
            match done.step {
                Some(Step::Answer(answer)) => self.answer(number, answer, now),
                Some(Step::Wait(time, pending)) => {
                    let Some(connection) = self.connections.get_mut(&number) else {
                        continue;
                    };
                    let due = now + time;
                    connection.state = State::Waiting { due, pending };
                    self.limit_waiting(now);
                }
                None => {
                    let text = "Internal Server Error: the page could not be computed";
                    self.answer(number, Answer::line(500, text), now);
                }
            }
        }
    }

    /// Proceeds with connections whose deadlines have passed.
    fn expire(&mut self, now: Instant) {
        let is_due = |connection: &Connection<P::Pending>| {
            let deadline = connection.deadline();
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let due = self.connections.iter().filter(|(_, it)| is_due(it));
        let due: Vec<u64> = due.map(|(number, _)| *number).collect();
        for number in due {
            let Some(connection) = self.connections.get_mut(&number) else {
                continue;
            };
            match &connection.state {
                State::Reading { .. } => {
                    self.answer(number, Answer::line(408, "Request Timeout"), now);
                }
                State::Waiting { .. } => {
                    let effort = Effort::Finish;
                    let computing = State::Computing(effort);
                    let before = std::mem::replace(&mut connection.state, computing);
                    if let State::Waiting { pending, .. } = before {
                        let job = Job::Finish(pending);
                        // The queue is at least as long as the limit of waiting connections, so it
                        // does not overflow.
                        self.workers.push(number, effort, job, &connection.is_gone);
                    }
                }
                _ => self.close(number),
            }
        }
    }

    fn answer(&mut self, number: u64, answer: Answer, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        if !connection.begin_answer(answer, now) {
            self.close(number);
        }
        self.limit_writing();
        self.limit_lingering();
    }

    fn close(&mut self, number: u64) {
        if let Some(connection) = self.connections.remove(&number) {
            connection.is_gone.store(true, Ordering::Relaxed);
            self.workers.forget(number);
        }
    }

    /// Closes a connection if its client has closed it. The client may have closed only its sending
    /// direction, but among queued requests, this one is most likely abandoned.
    fn close_if_gone(&mut self, number: u64) {
        let connection = self.connections.get(&number);
        if connection.is_some_and(Connection::has_end) {
            self.close(number);
        }
    }

    /// Returns the connections for which `key` has a value: the values, with their numbers.
    fn all<K>(&self, key: impl Fn(&State<P::Pending>) -> Option<K>) -> Vec<(K, u64)> {
        let all = self.connections.iter();
        all.filter_map(|(number, connection)| Some((key(&connection.state)?, *number)))
            .collect()
    }

    fn limit_reading(&mut self, now: Instant) {
        let reading = self.all(|state| matches!(state, State::Reading { .. }).then_some(()));
        if reading.len() > MAX_READING {
            self.answer(reading[0].1, Answer::line(503, TOO_MANY), now);
        }
    }

    fn limit_waiting(&mut self, now: Instant) {
        let waiting = self.all(|state| match state {
            State::Waiting { due, .. } => Some(*due),
            _ => None,
        });
        if waiting.len() > MAX_WAITING {
            if let Some((_, last)) = waiting.into_iter().max() {
                let text = "Service Unavailable: too many requests with seconds at once";
                self.answer(last, Answer::line(503, text), now);
            }
        }
    }

    fn limit_writing(&mut self) {
        let mut writing = self.all(|state| match state {
            State::Writing(outgoing) => Some((outgoing.deadline(), outgoing.held())),
            _ => None,
        });
        writing.sort_unstable();
        let mut held: usize = writing.iter().map(|((_, held), _)| held).sum();
        let mut count = writing.len();
        for ((_, its), number) in writing {
            // A single answer is sent regardless of its size.
            if count <= 1 || (count <= MAX_WRITING && held <= MAX_HELD) {
                break;
            }
            self.close(number);
            held -= its;
            count -= 1;
        }
    }

    fn limit_lingering(&mut self) {
        let lingering = self.all(|state| match state {
            State::Lingering { until } => Some(*until),
            _ => None,
        });
        if lingering.len() > MAX_LINGERING {
            if let Some((_, first)) = lingering.into_iter().min() {
                self.close(first);
            }
        }
    }
}

/// Returns the answer to a request that is refused. With status 401, browsers ask for a password.
/// Chromium does so only if the challenge has no second scheme.
fn refusal(status: u16, text: &str) -> Answer {
    let answer = Answer::error(status, text);
    match status {
        401 => answer.header("WWW-Authenticate", "Basic realm=\"plimsoll\""),
        _ => answer,
    }
}
