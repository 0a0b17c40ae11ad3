//! The server of the page: the page itself, `profiles/N`, `history/N` and `growth/N`. It listens on the loopback
//! interface and answers only requests to that host, so that no other site's page can read the files.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use plimsoll_page::{ASSETS, CONTENT_SECURITY_POLICY};

use super::files::Files;
use crate::failure::Failure;
use crate::input::Moment;
use crate::page::document;

/// The maximum number of connections. Above it, new ones are closed.
const CONNECTIONS: usize = 200;

/// The maximum length of the head of a request in bytes.
const MAX_HEAD: usize = 16 << 10;

/// The maximum number of fields of a request's head.
const MAX_FIELDS: usize = 64;

/// A client that sends or takes nothing for this long is disconnected.
const TIMEOUT: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

/// The server.
pub(super) struct Server<'a> {
    listener: TcpListener,
    address: SocketAddr,
    files: &'a Files,
    page: String,
    connections: AtomicUsize,
}

/// A request without a body.
struct Request {
    method: String,
    target: String,
    host: Vec<u8>,
}

/// An answer.
struct Answer<'a> {
    status: &'static str,
    content_type: &'static str,
    is_gzip: bool,
    body: Cow<'a, [u8]>,
}

impl<'a> Server<'a> {
    /// Opens the port; any free one for 0.
    pub(super) fn open(port: u16, files: &'a Files) -> Result<Self, Failure> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let fail = |error: io::Error| Failure::new(wanted, error);
        let listener = TcpListener::bind(wanted).map_err(fail)?;
        Ok(Self {
            address: listener.local_addr().map_err(fail)?,
            listener,
            files,
            page: document(ASSETS[0].gzip, &files.entries()),
            connections: AtomicUsize::new(0),
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Answers requests until the process ends, each connection by a separate thread.
    pub(super) fn serve(&self) {
        thread::scope(|scope| {
            for stream in self.listener.incoming() {
                let Ok(stream) = stream else {
                    // For example, too many files are open. They become fewer.
                    thread::sleep(Duration::from_millis(50));
                    continue;
                };
                if self.connections.fetch_add(1, Ordering::Relaxed) < CONNECTIONS {
                    let serve = || {
                        // Fails if the client left.
                        let _ = self.serve_one(stream);
                        self.connections.fetch_sub(1, Ordering::Relaxed);
                    };
                    if thread::Builder::new().spawn_scoped(scope, serve).is_ok() {
                        continue;
                    }
                }
                self.connections.fetch_sub(1, Ordering::Relaxed);
            }
        });
    }

    /// Answers the first request of a connection, and closes it.
    fn serve_one(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let (answer, has_body) = match read(&mut stream)? {
            Some(request) => (self.answer(&request), request.method != "HEAD"),
            None => (
                text(
                    "400 Bad Request",
                    "the request is not HTTP, or its head is too large",
                ),
                true,
            ),
        };
        let encoding = match answer.is_gzip {
            true => "Content-Encoding: gzip\r\n",
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{encoding}\
             Content-Security-Policy: {CONTENT_SECURITY_POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
            answer.status,
            answer.content_type,
            answer.body.len(),
        );
        stream.write_all(head.as_bytes())?;
        if has_body {
            stream.write_all(&answer.body)?;
        }
        Ok(())
    }

    fn answer(&self, request: &Request) -> Answer<'_> {
        if !self.is_own_host(&request.host) {
            return text("403 Forbidden", "the request names another host");
        }
        if !matches!(&*request.method, "GET" | "HEAD") {
            let cause = "only GET and HEAD are allowed";
            return text("405 Method Not Allowed", cause);
        }
        let target = &*request.target;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.trim_start_matches('/');
        if path.is_empty() {
            return found(ASSETS[0].content_type, self.page.as_bytes());
        }
        if let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) {
            return Answer {
                is_gzip: true,
                ..found(asset.content_type, asset.gzip)
            };
        }
        let (kind, name) = path.split_once('/').unwrap_or((path, ""));
        let answer = match (kind, name.parse()) {
            ("profiles", Ok(number)) => self.profile(number, query),
            ("history", Ok(number)) => {
                let history = self.files.history(number);
                history.map(|history| found("application/json", history.as_bytes()))
            }
            ("growth", Ok(number)) => {
                let growth = self.files.growth(number);
                growth.map(|growth| found("application/json", growth))
            }
            _ => None,
        };
        answer.unwrap_or_else(|| text("404 Not Found", "there is no such page"))
    }

    fn profile(&self, number: usize, query: &str) -> Option<Answer<'_>> {
        let moment = match moment(query) {
            Ok(moment) => moment,
            Err(cause) => return Some(text("400 Bad Request", &cause)),
        };
        Some(match self.files.profile(number, moment)? {
            Ok(profile) => found("application/octet-stream", profile),
            Err(failure) => text("404 Not Found", &failure.to_string()),
        })
    }

    /// Returns whether the request names this server, and not a name that leads here from elsewhere.
    fn is_own_host(&self, host: &[u8]) -> bool {
        let port = self.address.port();
        let names = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}"));
        names.iter().any(|name| name.as_bytes() == host)
    }
}

/// Reads the head of a request; `None` if it is invalid or too large.
fn read(stream: &mut impl Read) -> io::Result<Option<Request>> {
    let mut head = Vec::new();
    let mut part = [0; 2048];
    while head.len() <= MAX_HEAD {
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..length]);
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&head) {
            Ok(httparse::Status::Partial) => {}
            Err(_) => break,
            Ok(httparse::Status::Complete(_)) => {
                let mut fields = request.headers.iter();
                let host = fields.find(|field| field.name.eq_ignore_ascii_case("host"));
                return Ok(Some(Request {
                    method: request.method.unwrap_or_default().to_owned(),
                    target: request.path.unwrap_or_default().to_owned(),
                    host: host.map_or(Vec::new(), |host| host.value.to_vec()),
                }));
            }
        }
    }
    Ok(None)
}

/// Reads the parameters `at`, or `from` and `to`: seconds since 1970.
fn moment(query: &str) -> Result<Moment, String> {
    let value = |name: &str| -> Result<Option<u64>, String> {
        let mut parts = query.split('&').filter_map(|part| part.split_once('='));
        let Some((_, text)) = parts.find(|(key, _)| *key == name) else {
            return Ok(None);
        };
        let seconds: f64 = text
            .parse()
            .map_err(|_| format!("{name}={text} is not a number"))?;
        Ok(Some((seconds * 1e9) as u64))
    };
    match (value("at")?, value("from")?, value("to")?) {
        (Some(at), ..) => Ok(Moment::At(at)),
        (None, Some(from), Some(to)) => Ok(Moment::Between(from, to)),
        (None, None, None) => Ok(Moment::End),
        _ => Err("from and to belong together".to_owned()),
    }
}

fn found<'a>(content_type: &'static str, body: impl Into<Cow<'a, [u8]>>) -> Answer<'a> {
    Answer {
        status: "200 OK",
        content_type,
        is_gzip: false,
        body: body.into(),
    }
}

fn text<'a>(status: &'static str, cause: &str) -> Answer<'a> {
    Answer {
        status,
        ..found(TEXT, format!("{cause}\n").into_bytes())
    }
}
