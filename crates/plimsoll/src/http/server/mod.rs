//! A small server for the pages, on threads of Plimsoll.
//!
//! One thread, the [`reactor`], does all input and output and never blocks on a connection. Each
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
//! | the answer is queued, the newest first | 16 for each [`Effort`](super::pages::Effort) | | the oldest is answered 503 |
//! | the answer is computed | 2 short, 2 long, 1 collection, 1 difference | | others are queued |
//! | `seconds=` passes | 8 | with the client | the one that ends last is answered 503 |
//! | the answer is written | 24, and 64 MiB | after 20 s and 1 s for each 16 KiB | the slowest is closed |
//! | the end is awaited | 16 | after 100 ms | the oldest is closed |
//!
//! Short pages, which scrapers request often, have places that no profile takes. Each connection
//! serves one request.

mod connection;
mod head;
mod outgoing;
mod reactor;
mod work;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use plimsoll_sys::os::close_on_fork;

use self::reactor::Reactor;
use self::work::Shared;
use super::access::Names;
use crate::internal_scope;
use crate::internal_thread::{self, OwnThread};

/// Length of the system's queue of connections to be accepted, as far as the system allows.
const BACKLOG: libc::c_int = 4096;

/// A running server. It stops when this value is dropped; requests under way are answered to the
/// end.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
}

/// Serves the pages at an address, such as `127.0.0.1:6060`; port 0 selects a free one.
///
/// Requests from web browsers are refused if they come from pages of other sites. They are also
/// refused for other names than the address, the given name and `localhost`: see [`serve_hosts`].
///
/// # Errors
/// The system's error, with the address: the address is invalid, in use or forbidden, or no thread
/// can be created.
pub fn serve(address: impl ToSocketAddrs + std::fmt::Display) -> io::Result<Server> {
    serve_hosts(address, &[])
}

/// Serves the pages like [`serve`], but also accepts requests whose header `Host` has one of the
/// names in `hosts`. These are the names by which other machines and reverse proxies reach the
/// program. Requests to an IP address need no name.
///
/// # Errors
/// Those of [`serve`], and [`io::ErrorKind::InvalidInput`] if one of `hosts` is not a host name.
pub fn serve_hosts(
    address: impl ToSocketAddrs + std::fmt::Display,
    hosts: &[&str],
) -> io::Result<Server> {
    crate::recording::note_owners();
    let _own = internal_scope::scope();
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot serve profiles at {address}: {error}"),
        )
    };
    let mut names = Names::default();
    names.add_listening(&address.to_string());
    for host in hosts {
        let wrong = |why| format!("the host name {host:?} {why}");
        let added = names.add(host).map_err(wrong);
        added.map_err(|why| named(io::Error::new(io::ErrorKind::InvalidInput, why)))?;
    }
    let listener = TcpListener::bind(&address).map_err(named)?;
    close_on_fork::register(listener.as_fd());
    listener.set_nonblocking(true).map_err(named)?;
    // The standard library's queue of 128 overflows when many clients connect at once. The system
    // then delays a scraper by a second.
    // SAFETY: `listener` is an open, listening socket; the call changes the length of its queue.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    let address = listener.local_addr().map_err(named)?;
    let shared = Arc::new(Shared::new().map_err(named)?);
    let reactor = Reactor::new(listener, names, Arc::clone(&shared));
    let thread = internal_thread::spawn(c"plimsoll-http", move || {
        // Serves the requests under way, if any. The port is free by now.
        if let Some(rest) = reactor.run() {
            let _ = internal_thread::spawn(c"plimsoll-http", move || {
                rest.run();
            });
        }
    })
    .map_err(named)?;
    Ok(Server {
        address,
        shared,
        thread: Some(thread),
    })
}

impl Server {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _own = internal_scope::scope();
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
