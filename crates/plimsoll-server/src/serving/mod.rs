//! The server: its threads, its connections, and their limits.
//!
//! One thread, the reactor, does all input and output and never blocks on a connection. Each
//! computation of an answer gets a separate thread. A client that sends nothing, reads nothing or
//! requests `seconds=` thus holds only a descriptor and some memory. It holds neither a thread nor
//! a place for computing.
//!
//! # Limits
//! Connections are limited by their states, so that those in one state cannot displace those in
//! another. At a limit, a new connection displaces one whose client is gone, or else the slowest.
//!
//! | state | limit | ends | at the limit |
//! |---|---|---|---|
//! | the request is read | 32 | after 10 s, with 408 | the oldest is answered 503 |
//! | the answer is queued, the newest first | 16 for each [`Effort`](crate::pages::Effort) | | the oldest is answered 503 |
//! | the answer is computed | 2 short, 2 long, 1 exclusive, 1 second half | | others are queued |
//! | the time between two halves passes | 8 | with the client | the one that ends last is answered 503 |
//! | the answer is written | 24, and 64 MiB | after 20 s and 1 s for each 16 KiB | the slowest is closed |
//! | the end is awaited | 16 | after 100 ms | the oldest is closed |
//!
//! Short pages, which scrapers request often, have places that no profile takes. Each connection
//! serves one request.

mod connection;
mod outgoing;
mod reactor;
mod socket;
mod work;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;

use plimsoll_sys::os::close_on_fork;
use plimsoll_sys::os::filter;
use plimsoll_sys::os::own_descriptor::OwnDescriptor;

use self::reactor::Reactor;
use self::work::Control;
use crate::access::Access;
use crate::pages::{Pages, Thread};

/// Length of the system's queue of connections to be accepted, as far as the system allows.
const BACKLOG: libc::c_int = 4096;

/// A socket that listens. The server begins at [`Listener::serve`].
#[derive(Debug)]
pub struct Listener(socket::Listener);

impl Listener {
    /// Listens at an address, such as `127.0.0.1:6060`; port 0 selects a free one.
    ///
    /// # Errors
    /// The system's error: the address is invalid, in use or forbidden.
    pub fn at_address(address: impl ToSocketAddrs) -> io::Result<Self> {
        filter::check_server()?;
        let listener = TcpListener::bind(address)?;
        // The standard library's queue of 128 overflows when many clients connect at once. The system
        // then delays a scraper by a second.
        // SAFETY: `listener` is an open, listening socket; the call changes the length of its queue.
        unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
        Ok(Self(socket::Listener::Address(OwnDescriptor::new(
            listener,
        ))))
    }

    /// Listens at a path, as a Unix socket with mode 0600: only the same user and root can connect. A
    /// socket that remained from an ended process is replaced.
    ///
    /// # Errors
    /// The system's error: a process listens there, a file of another kind is in the way, or the path
    /// is too long.
    pub fn at_path(path: &Path) -> io::Result<Self> {
        filter::check_server()?;
        filter::check_unix_socket()?;
        Ok(Self(socket::Listener::at_path(path)?))
    }

    /// Returns the address; `None` if the server listens at a path.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<Option<SocketAddr>> {
        match &self.0 {
            socket::Listener::Address(listener) => {
                let listener = listener.get().ok_or(io::ErrorKind::NotConnected)?;
                listener.local_addr().map(Some)
            }
            socket::Listener::Path(_) => Ok(None),
        }
    }

    /// Serves the pages to the clients that have access.
    ///
    /// # Errors
    /// The system's error: no thread can be created, or the process has too many descriptors.
    pub fn serve(self, access: Access, pages: impl Pages) -> io::Result<Running> {
        close_on_fork::register(self.0.as_fd());
        self.0.set_nonblocking()?;
        let control = Arc::new(Control::new()?);
        let pages = Arc::new(pages);
        let reactor = Reactor::new(self.0, access, Arc::clone(&pages), Arc::clone(&control));
        let spawner = Arc::clone(&pages);
        let serve = Box::new(move || {
            // Serves the remaining requests, if any. The port is free by now.
            if let Some(rest) = reactor.run() {
                let serve_rest = Box::new(move || drop(rest.run()));
                drop(spawner.spawn(c"plimsoll-http", serve_rest));
            }
        });
        let thread = pages.spawn(c"plimsoll-http", serve)?;
        Ok(Running {
            control,
            thread: Some(thread),
        })
    }
}

/// A running server. It stops when this value is dropped. The drop closes the listening socket, and
/// then waits until the answers under way are sent, for at most two seconds. It does not wait for
/// requests whose time has not passed. If the program continues, the remaining requests are answered
/// to the end.
pub struct Running {
    control: Arc<Control>,
    thread: Option<Box<dyn Thread>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
