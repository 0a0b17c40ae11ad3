//! Replaces the module on systems without a server: [`super::handle`] still answers for a server of
//! the program.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use super::clients::Clients;

/// A running server. Not available on this system.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
}

/// Returns an error: the server is not available on this system. A server of the program can call
/// [`handle`](super::handle).
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub fn serve(address: impl ToSocketAddrs + Display) -> io::Result<Server> {
    serve_hosts(address, &[])
}

/// Returns an error, as [`serve`] does.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub fn serve_hosts(address: impl ToSocketAddrs + Display, _hosts: &[&str]) -> io::Result<Server> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!("cannot serve profiles at {address}: the server is not available on this system"),
    ))
}

/// Returns an error, as [`serve`] does.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub fn serve_to(address: impl ToSocketAddrs + Display, _clients: Clients) -> io::Result<Server> {
    serve(address)
}

/// A running server at a path. Not available on this system.
#[derive(Debug)]
pub struct UnixServer {
    path: PathBuf,
}

/// Returns an error, as [`serve`] does.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`], always.
pub fn serve_unix(path: impl Into<PathBuf>, _clients: Clients) -> io::Result<UnixServer> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!(
            "cannot serve profiles at {}: the server is not available on this system",
            path.into().display()
        ),
    ))
}

impl UnixServer {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Server {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
