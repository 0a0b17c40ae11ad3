//! The server of the pages, on threads of Plimsoll.

use std::ffi::CStr;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use plimsoll_server::access::Access;
use plimsoll_server::answer::{Answer, Step};
use plimsoll_server::pages::{self as served, Effort, Thread, Work};
use plimsoll_server::serving::{Listener, Running};
use plimsoll_sys::os::{filter, process_id};

use super::clients::Clients;
use super::pprof::Delta;
use super::{Request, finish, pages};
use plimsoll_core::internal_thread::{self, OwnThread};
use plimsoll_core::{internal_heap, internal_scope};

/// A running server. It stops when this value is dropped. The drop closes the listening socket, and
/// then waits until the answers under way are sent, for at most two seconds. It does not wait for
/// requests with `seconds=` whose time has not passed. If the program continues, the remaining
/// requests are answered to the end.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// let server = plimsoll::http::serve("127.0.0.1:0")?;
/// println!("profiles at http://{}/debug/pprof/", server.address());
/// assert_ne!(server.address().port(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _running: OwnRunning,
}

/// A running server at a path. When it is dropped, it stops like [`Server`], and the socket's file is
/// removed.
///
/// ```no_run
/// use plimsoll::http::{Clients, serve_unix};
///
/// # fn main() -> std::io::Result<()> {
/// let server = serve_unix("/run/user/1000/app.sock", Clients::new())?;
/// println!("curl --unix-socket {} http://localhost/debug/pprof/", server.path().display());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UnixServer {
    path: PathBuf,
    /// The process that created the socket; the child of a fork does not remove it.
    process: u32,
    _running: OwnRunning,
}

/// A running server whose memory is Plimsoll's. `None` only during the drop.
#[derive(Debug)]
struct OwnRunning(Option<Running>);

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
    let listener = Listener::at_address(&address).map_err(&named)?;
    let bound = listener.address().map_err(&named)?;
    let running = OwnRunning::start(listener, access).map_err(&named)?;
    Ok(Server {
        address: bound.ok_or_else(|| named(io::ErrorKind::AddrNotAvailable.into()))?,
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
    let running = OwnRunning::start(listener, access).map_err(&named)?;
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

/// The pages, computed on threads of Plimsoll.
struct Pages;

impl served::Pages for Pages {
    type Pending = Delta;

    fn effort(&self, request: &served::Request) -> Effort {
        pages::effort(&request.path, &request.query)
    }

    fn reads_body(&self, request: &served::Request) -> bool {
        pages::reads_body(&request.method, &request.path)
    }

    fn begin(
        &self,
        request: &served::Request,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Step<Delta> {
        Request::new(&request.method, &request.path, &request.query)
            .body(&request.body)
            .accept(&request.accept)
            .cancelled(cancelled)
            .begin()
    }

    fn finish(&self, delta: Delta) -> Answer {
        finish(delta)
    }

    fn rest(&self) {
        internal_heap::trim();
    }

    fn spawn(&self, name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>> {
        Ok(Box::new(ServerThread(internal_thread::spawn(name, work)?)))
    }
}

/// A thread of Plimsoll that works for the server.
struct ServerThread(OwnThread);

impl Thread for ServerThread {
    fn join(self: Box<Self>) {
        self.0.join();
    }
}

impl OwnRunning {
    fn start(listener: Listener, access: Access) -> io::Result<Self> {
        plimsoll_tasks::recording::note_owners();
        listener
            .serve(access, Pages)
            .map(|running| Self(Some(running)))
    }
}

impl Drop for OwnRunning {
    fn drop(&mut self) {
        let _own = internal_scope::scope();
        self.0 = None;
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
        if self.process == process_id() && filter::check_writing().is_ok() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
