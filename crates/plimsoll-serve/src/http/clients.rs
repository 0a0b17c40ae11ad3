//! The clients that a server answers.

use std::io;

use plimsoll_server::access::Names;
use plimsoll_server::token::Token;

/// The clients that a server answers. By default, requests without a token, for an IP address or
/// `localhost`.
///
/// ```no_run
/// use plimsoll::http::{Clients, serve_to};
///
/// # fn main() -> std::io::Result<()> {
/// let clients = Clients::new().host("host.example.com")?.token("file:/run/secrets/profiles")?;
/// let server = serve_to("0.0.0.0:6060", clients)?;
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is an argument of `serve_to`"]
pub struct Clients {
    pub(super) names: Names,
    pub(super) token: Option<Token>,
}

impl Clients {
    /// Creates the default.
    pub fn new() -> Self {
        Self {
            names: Names::with_advice(", or add the name to the setting http_hosts"),
            token: None,
        }
    }

    /// Also answers requests whose header `Host` has this name: one by which other machines or a
    /// reverse proxy reach the program.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it is not a host name; a host name has no port.
    pub fn host(mut self, name: &str) -> io::Result<Self> {
        let wrong = |why| invalid(format!("the host name {name:?} {why}"));
        self.names.add(name).map_err(wrong)?;
        Ok(self)
    }

    /// Requires a token: the text, or the first line of the file that `file:PATH` names. Clients send
    /// `Authorization: Bearer TOKEN`, or the token as the password of any user
    /// (`http://user:TOKEN@host/`). Others get the status 401.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the token is empty, contains a space or anything but printable
    /// ASCII characters, or looks like a path without `file:`; or if its file cannot be read.
    pub fn token(mut self, token: &str) -> io::Result<Self> {
        let token = Token::new(token).map_err(|why| invalid(format!("http_token: {why}")))?;
        self.token = Some(token);
        Ok(self)
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self::new()
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
