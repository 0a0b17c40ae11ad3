//! The interface between the server and the pages that it serves.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddr;

use crate::answer::{Answer, Step};

/// A request that passed all checks of the server.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// The path, with its escapes.
    pub path: String,
    /// The part of the target behind the `?`, with its escapes; or empty.
    pub query: String,
    /// The body, if the page reads it.
    pub body: Vec<u8>,
    /// The header `Accept`; several are joined by commas.
    pub accept: String,
    /// The host, without a port, by which the client reached the server: letters, digits and `.-_:[]%`.
    /// `None` if the request names none.
    pub host: Option<String>,
    /// The address of the client's socket; `None` if the server listens at a path.
    pub peer: Option<SocketAddr>,
}

/// The work of an answer, which determines how many of the kind a server computes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Some milliseconds, whatever the program does.
    Short,
    /// Up to seconds.
    Long,
    /// Up to seconds, one after the other. If the client ends its direction, it counts as gone.
    Exclusive,
    /// The second half of an answer.
    Finish,
}

/// The work of a thread.
pub type Work = Box<dyn FnOnce() + Send>;

/// A started thread. When it is dropped, the thread continues.
pub trait Thread: Send + Sync {
    /// Waits for the end of the thread.
    fn join(self: Box<Self>);
}

/// The pages of a server.
pub trait Pages: Send + Sync + 'static {
    /// The first half of an answer that covers some time.
    type Pending: Send + 'static;

    /// Returns the work of the answer to a request by `GET` or `HEAD`, or with a body that the page reads.
    /// Must return at once.
    fn effort(&self, request: &Request) -> Effort;

    /// Returns whether the answer depends on the request's body, which may have
    /// [`LONGEST_BODY`](crate::head::LONGEST_BODY) bytes. Must return at once.
    fn reads_body(&self, _request: &Request) -> bool {
        false
    }

    /// Computes the answer, or its first half. `cancelled` returns true once no client waits for it.
    fn begin(
        &self,
        request: &Request,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Step<Self::Pending>;

    /// Computes the second half of an answer.
    fn finish(&self, pending: Self::Pending) -> Answer;

    /// Called while no connection is open.
    fn rest(&self) {}

    /// Starts a thread of the server: the one for input and output, and one for each answer.
    ///
    /// # Errors
    /// The system's error: too many threads, or out of memory.
    fn spawn(&self, name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>>;
}
