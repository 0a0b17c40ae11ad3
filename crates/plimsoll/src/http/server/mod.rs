//! A small server for the pages, on threads of Plimsoll's own.
//!
//! One thread, the [`reactor`], does all input and output and never blocks on a connection.
//! A thread is created for each answer that is computed. So a client that sends nothing, reads
//! nothing or asks for `seconds=` holds a descriptor and some memory, and neither a thread nor a
//! place for computing.
//!
//! # Limits
//! Connections are limited by what they wait for, so that those of one kind cannot keep out those
//! of another. Where a limit is reached, the newcomer displaces a connection whose client is gone,
//! else the slowest.
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
//! Short pages, which are those that are scraped often, have places that no profile takes. One
//! request for each connection.

mod connection;
mod head;
mod outgoing;
mod reactor;
mod work;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use self::reactor::Reactor;
use self::work::Shared;
use super::access::Names;
use crate::os::closed_in_forks;
use crate::own;
use crate::own_thread::{self, OwnThread};

/// How many connections the system holds until they are accepted, as far as it allows.
const BACKLOG: libc::c_int = 4096;

/// A server that is running. It stops when this is dropped; requests under way are answered to the
/// end.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
}

/// Serves the pages at an address, such as `127.0.0.1:6060`; port 0 takes any that is free.
///
/// Requests of web browsers for other names than the address, the name given and `localhost`, and
/// those from pages of other sites, are refused: see [`serve_hosts`].
///
/// # Errors
/// What the system says, with the address: it is not an address, it is in use, it must not be used;
/// or there is no thread to be had.
pub fn serve(address: impl ToSocketAddrs + std::fmt::Display) -> io::Result<Server> {
    serve_hosts(address, &[])
}

/// As [`serve`], also for requests whose header `Host` has one of the names in `hosts`: those by
/// which other machines and reverse proxies reach the program. A request for an IP address needs no
/// name.
///
/// # Errors
/// Those of [`serve`]; [`io::ErrorKind::InvalidInput`] if one of `hosts` is not a host name.
pub fn serve_hosts(
    address: impl ToSocketAddrs + std::fmt::Display,
    hosts: &[&str],
) -> io::Result<Server> {
    crate::contention::note_owners();
    let _own = own::scope();
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
    closed_in_forks::register(listener.as_fd());
    listener.set_nonblocking(true).map_err(named)?;
    // The standard library's 128 overflow when clients connect in a storm, and the system then lets
    // a scraper wait for a second.
    // SAFETY: `listener` is an open socket that listens; the call changes the length of its queue.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    let address = listener.local_addr().map_err(named)?;
    let shared = Arc::new(Shared::new().map_err(named)?);
    let reactor = Reactor::new(listener, names, Arc::clone(&shared));
    let thread = own_thread::spawn(c"plimsoll-http", move || {
        // With the requests under way, if there are any; the port is free by now.
        if let Some(rest) = reactor.run() {
            let _ = own_thread::spawn(c"plimsoll-http", move || {
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
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _own = own::scope();
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
