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
mod socket;
mod work;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_sys::os::close_on_fork;
use plimsoll_sys::os::process_id;

use self::reactor::Reactor;
use self::socket::Listener;
use self::work::Shared;
use super::access::Access;
use super::clients::Clients;
use crate::internal_scope;
use crate::internal_thread::{self, OwnThread};

/// Length of the system's queue of connections to be accepted, as far as the system allows.
const BACKLOG: libc::c_int = 4096;

/// A running server. It stops when this value is dropped. The drop closes the listening socket, and
/// then waits until the answers under way are sent, for at most two seconds. It does not wait for
/// requests with `seconds=` whose time has not passed. If the program continues, the remaining
/// requests are answered to the end.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _running: Running,
}

/// A running server at a path. When it is dropped, it stops like [`Server`], and the socket's file is
/// removed.
#[derive(Debug)]
pub struct UnixServer {
    path: PathBuf,
    /// The process that created the socket; the child of a fork does not remove it.
    process: u32,
    _running: Running,
}

/// The thread of a server.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
}

/// Serves the pages at an address, such as `127.0.0.1:6060`; port 0 selects a free one.
///
/// Requests from web browsers are refused if they come from pages of other sites. They are also
/// refused for other names than the address, the given name and `localhost`: see [`Clients::host`].
///
/// # Errors
/// The system's error, with the address: the address is invalid, in use or forbidden, or no thread
/// can be created.
pub fn serve(address: impl ToSocketAddrs + std::fmt::Display) -> io::Result<Server> {
    serve_to(address, Clients::new())
}

/// Serves the pages like [`serve`], also to requests whose header `Host` has one of the names in
/// `hosts`: the short form of [`serve_to`].
///
/// # Errors
/// Those of [`serve`] and [`Clients::host`].
pub fn serve_hosts(
    address: impl ToSocketAddrs + std::fmt::Display,
    hosts: &[&str],
) -> io::Result<Server> {
    let mut clients = Clients::new();
    for host in hosts {
        clients = clients.host(host).map_err(named(&address))?;
    }
    serve_to(address, clients)
}

/// Serves the pages like [`serve`], to these clients.
///
/// # Errors
/// Those of [`serve`].
pub fn serve_to(
    address: impl ToSocketAddrs + std::fmt::Display,
    clients: Clients,
) -> io::Result<Server> {
    let _own = internal_scope::scope();
    let named = named(&address);
    let mut access = Access {
        names: clients.names,
        token: clients.token,
        is_local: false,
    };
    access.names.add_listening(&address.to_string());
    let listener = TcpListener::bind(&address).map_err(&named)?;
    // The standard library's queue of 128 overflows when many clients connect at once. The system
    // then delays a scraper by a second.
    // SAFETY: `listener` is an open, listening socket; the call changes the length of its queue.
    unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    let address = listener.local_addr().map_err(&named)?;
    let running = Running::start(Listener::Address(listener), access).map_err(&named)?;
    Ok(Server {
        address,
        _running: running,
    })
}

/// Serves the pages at a path, as a Unix socket with mode 0600: only the same user and root can
/// connect. A socket that remained from an ended process is replaced.
///
/// # Errors
/// The system's error, with the path: a process listens there, a file of another kind is in the way,
/// the path is too long, or no thread can be created.
pub fn serve_unix(path: impl Into<PathBuf>, clients: Clients) -> io::Result<UnixServer> {
    let _own = internal_scope::scope();
    let path = path.into();
    let shown = path.display().to_string();
    let named = named(&shown);
    let access = Access {
        names: clients.names,
        token: clients.token,
        is_local: true,
    };
    let listener = Listener::at_path(&path).map_err(&named)?;
    let running = Running::start(listener, access).map_err(&named)?;
    Ok(UnixServer {
        path,
        process: process_id(),
        _running: running,
    })
}

/// Returns a function that adds the address to an error.
fn named(address: &impl std::fmt::Display) -> impl Fn(io::Error) -> io::Error {
    let address = address.to_string();
    move |error| {
        io::Error::new(
            error.kind(),
            format!("cannot serve profiles at {address}: {error}"),
        )
    }
}

impl Running {
    fn start(listener: Listener, access: Access) -> io::Result<Self> {
        crate::recording::note_owners();
        close_on_fork::register(listener.as_fd());
        listener.set_nonblocking()?;
        let shared = Arc::new(Shared::new()?);
        let reactor = Reactor::new(listener, access, Arc::clone(&shared));
        let thread = internal_thread::spawn(c"plimsoll-http", move || {
            // Serves the remaining requests, if any. The port is free by now.
            if let Some(rest) = reactor.run() {
                let _ = internal_thread::spawn(c"plimsoll-http", move || {
                    rest.run();
                });
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Server {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl UnixServer {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        if self.process == process_id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _own = internal_scope::scope();
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}
