//! Sockets of the server: of an address, or of a path.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use plimsoll_sys::os::own_descriptor::OwnDescriptor;

/// A listening socket.
#[derive(Debug)]
pub(super) enum Listener {
    Address(OwnDescriptor<TcpListener>),
    Path(OwnDescriptor<UnixListener>),
}

/// A client's connection.
pub(super) enum Stream {
    Address(OwnDescriptor<TcpStream>),
    Path(OwnDescriptor<UnixStream>),
}

/// The error of a socket whose descriptor the program has closed.
fn lost() -> io::Error {
    ErrorKind::NotConnected.into()
}

impl Listener {
    /// Listens at a path, as a socket with mode 0600. Replaces a socket on which no process listens.
    ///
    /// # Errors
    /// The system's error. [`ErrorKind::AddrInUse`] if a process listens there, or if the path is no
    /// socket.
    pub(super) fn at_path(path: &Path) -> io::Result<Self> {
        let socket = match bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && is_abandoned(path) => {
                std::fs::remove_file(path)?;
                bind(path)?
            }
            bound => bound?,
        };
        // SAFETY: `socket` is an open socket that is bound.
        if unsafe { libc::listen(socket.as_raw_fd(), super::BACKLOG) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::Path(OwnDescriptor::new(socket.into())))
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Address(listener) => listener.get().ok_or_else(lost)?.set_nonblocking(true),
            Self::Path(listener) => listener.get().ok_or_else(lost)?.set_nonblocking(true),
        }
    }

    /// Reports whether the program has closed the socket.
    pub(super) fn is_lost(&self) -> bool {
        match self {
            Self::Address(listener) => listener.get().is_none(),
            Self::Path(listener) => listener.get().is_none(),
        }
    }

    /// Accepts a connection. Also returns the address of the client, if the server listens at one.
    pub(super) fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        Ok(match self {
            Self::Address(listener) => {
                let (stream, peer) = listener.get().ok_or_else(lost)?.accept()?;
                (Stream::Address(OwnDescriptor::new(stream)), Some(peer))
            }
            Self::Path(listener) => {
                let (stream, _) = listener.get().ok_or_else(lost)?.accept()?;
                (Stream::Path(OwnDescriptor::new(stream)), None)
            }
        })
    }
}

/// Returns the address of a path.
fn address_of(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: zero is a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.contains(&0) || bytes.len() >= address.sun_path.len() {
        let most = address.sun_path.len() - 1;
        let message = format!("the path of a socket has 1 to {most} bytes");
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

/// Creates a socket that is closed when a program is executed.
fn new_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call has no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `socket` was just created, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the descriptor is open, and the call has no pointers.
    match unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Creates a socket at a path, on which it does not listen yet.
fn bind(path: &Path) -> io::Result<OwnedFd> {
    let address = address_of(path)?;
    let socket = new_socket()?;
    // Linux gives the file this mode. By the path, another user could direct the change to another
    // file.
    // SAFETY: the descriptor is open.
    let has_mode = unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) } == 0;
    // SAFETY: the descriptor is open; the address is valid and has this length.
    let failed = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        ) != 0
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    if !has_mode {
        // Before it listens, so that no other user can connect.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(socket)
}

/// Returns whether a path is a socket that refuses connections.
fn is_abandoned(path: &Path) -> bool {
    let metadata = std::fs::symlink_metadata(path);
    metadata.is_ok_and(|metadata| metadata.file_type().is_socket())
        && try_connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Connects to a path. Fails instead of waiting if its queue of connections is full: the process that
/// listens there may never accept one.
fn try_connect(path: &Path) -> io::Result<()> {
    let address = address_of(path)?;
    let socket = UnixStream::from(new_socket()?);
    socket.set_nonblocking(true)?;
    // SAFETY: the descriptor is open; the address is valid and has this length.
    let status = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Address(listener) => listener.as_fd(),
            Self::Path(listener) => listener.as_fd(),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Stream {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Address(stream) => stream.get().ok_or_else(lost)?.set_nonblocking(true),
            Self::Path(stream) => stream.get().ok_or_else(lost)?.set_nonblocking(true),
        }
    }

    /// Sends the end of the answer.
    pub(super) fn end_answer(&self) -> io::Result<()> {
        match self {
            Self::Address(stream) => stream.get().ok_or_else(lost)?.shutdown(Shutdown::Write),
            Self::Path(stream) => stream.get().ok_or_else(lost)?.shutdown(Shutdown::Write),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Address(stream) => stream.number(),
            Self::Path(stream) => stream.number(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Address(stream) => stream.get_mut().ok_or_else(lost)?.read(to),
            Self::Path(stream) => stream.get_mut().ok_or_else(lost)?.read(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Address(stream) => stream.get_mut().ok_or_else(lost)?.write(from),
            Self::Path(stream) => stream.get_mut().ok_or_else(lost)?.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
