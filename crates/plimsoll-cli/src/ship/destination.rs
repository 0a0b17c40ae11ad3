//! Destinations: a directory or an HTTP server.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use plimsoll_command::failure::Failure;
use plimsoll_command::http;
use plimsoll_launch::run::directory::Directory;
use plimsoll_launch::run::killed::copy_with_holes;

/// The time for one request.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The environment variable with the bearer token for an HTTP server. Not the token of pages, which
/// another server must not see.
const TOKEN: &str = "PLIMSOLL_SHIP_TOKEN";

/// A place that files move to.
pub(super) struct Destination {
    /// Its name, as the user gave it.
    pub(super) name: String,
    kind: Kind,
}

enum Kind {
    Directory(PathBuf),
    /// The URL ends with a slash.
    Http {
        url: String,
        token: Option<String>,
    },
}

/// The content of a file.
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// A file that is mostly holes. Directories keep the holes; elsewhere, the file is compressed, and
    /// `.gz` is added to its name.
    File(File),
}

/// The reason why a destination did not confirm a file.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    pub(super) failure: Failure,
    /// Whether the destination refused this file and may accept another one. Otherwise, the destination
    /// is away.
    pub(super) is_refused: bool,
}

impl Destination {
    /// Returns the destination of that name, with the settings of the environment.
    ///
    /// # Errors
    /// The name or a setting is invalid.
    pub(super) fn new(name: &str) -> Result<Self, Failure> {
        let fail = |cause: String| Failure::new(format!("--to {name}"), cause).with_code(2);
        let kind = if name.contains("://") {
            check_scheme(name).map_err(fail)?;
            if name.contains(['?', '#']) {
                return Err(fail("the URL must end with a path".to_owned()));
            }
            Kind::Http {
                url: format!("{}/", name.trim_end_matches('/')),
                token: std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
            }
        } else {
            Kind::Directory(name.into())
        };
        let name = name.to_owned();
        Ok(Self { name, kind })
    }

    /// Returns the directory, if this is one.
    pub(super) fn directory(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Directory(path) => Some(path),
            Kind::Http { .. } => None,
        }
    }

    /// Stores a file. A file of the same name is replaced.
    ///
    /// # Errors
    /// The destination has not confirmed the file.
    pub(super) fn put(&self, name: &str, content: &Content) -> Result<(), Unconfirmed> {
        let (url, token) = match &self.kind {
            Kind::Directory(path) => {
                let written = put_in_directory(path, name, content);
                return written.map_err(|error| Unconfirmed {
                    failure: Failure::new(&self.name, format!("cannot write {name}: {error}")),
                    is_refused: false,
                });
            }
            Kind::Http { url, token } => (url, token),
        };
        let (name, body) = match content {
            Content::Bytes(bytes) => (name.to_owned(), Cow::Borrowed(&bytes[..])),
            Content::File(file) => {
                let compressed = compressed(file).map_err(|error| Unconfirmed {
                    failure: Failure::new(name, format!("cannot read the file: {error}")),
                    is_refused: true,
                })?;
                (format!("{name}.gz"), Cow::Owned(compressed))
            }
        };
        let mut headers = vec![("content-type", "application/octet-stream".to_owned())];
        if let Some(token) = token {
            headers.push(("authorization", format!("Bearer {token}")));
        }
        let url = format!("{url}{name}");
        let answer = http::put(&url, &self.name, &headers, &body, TIMEOUT);
        let answer = answer.map_err(|failure| Unconfirmed {
            failure,
            is_refused: false,
        })?;
        match answer.status {
            200..=299 => Ok(()),
            status => Err(Unconfirmed {
                failure: Failure::new(&self.name, http::refusal(status, &answer.body)),
                // A request timeout and too many requests concern the server, not the file.
                is_refused: (300..500).contains(&status) && ![408, 429].contains(&status),
            }),
        }
    }
}

/// Rejects addresses that the HTTP client cannot send to.
fn check_scheme(url: &str) -> Result<(), String> {
    let is_https = url.starts_with("https://");
    if url.starts_with("http://") || is_https && cfg!(feature = "tls") {
        return Ok(());
    }
    Err(match is_https {
        true => format!(
            "this command is built without TLS (the feature tls), which {url} requires; use http:// to a \
             proxy that adds TLS"
        ),
        false => format!("{url} is not an address of a directory or http://"),
    })
}

/// Writes a file, and returns when the disk has it.
fn put_in_directory(path: &Path, name: &str, content: &Content) -> io::Result<()> {
    let directory = Directory::open(path)?;
    directory.replace(name, |to| {
        match content {
            Content::Bytes(bytes) => to.write_all(bytes)?,
            Content::File(file) => copy_with_holes(file, to)?,
        }
        to.sync_all()
    })?;
    File::open(path)?.sync_all()
}

/// Returns a file compressed by gzip. Holes take almost no space.
fn compressed(file: &File) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut file = file;
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut encoder)?;
    encoder.finish()
}
