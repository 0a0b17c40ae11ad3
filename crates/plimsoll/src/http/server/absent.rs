//! Replaces the module on systems without a server: [`super::handle`] still answers for a server of
//! the program.

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

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

impl Server {
    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
