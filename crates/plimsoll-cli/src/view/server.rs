//! The server of the page: the page itself, `profiles/N`, `history/N` and `growth/N`.
//!
//! All of them are below a random token, which is a part of the printed address: other users of this
//! machine can connect to the port, but do not know the token. The address that the browser gets as an
//! argument is visible to them. So it has a second token, which works for clients of this user only, and
//! leads to the first.
//!
//! A profile of the past takes as much memory as reading its file, so one is computed at a time.

use std::convert::Infallible;
use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_page::{ASSETS, CONTENT_SECURITY_POLICY};
use plimsoll_server::access::Access;
use plimsoll_server::answer::{Answer, Body, Step};
use plimsoll_server::pages::{Effort, Pages, Request, Thread, Work};
use plimsoll_server::query;
use plimsoll_server::serving::{Listener, Running};
use plimsoll_server::token::Token;

use super::files::Files;
use plimsoll_command::failure::Failure;
use plimsoll_command::files::random_name;
use plimsoll_command::input::Moment;
use plimsoll_command::page::document;
use plimsoll_command::server_thread;
use plimsoll_command::sockets;

/// A running server, which stops when it is dropped.
pub(super) struct Server {
    /// The address of the page.
    pub(super) url: String,
    /// The address that leads clients of this user to the page.
    pub(super) url_for_browser: String,
    _running: Running,
}

impl Server {
    /// Serves the files at a port of the loopback interface; at any free one for 0.
    pub(super) fn start(port: u16, files: Files) -> Result<Self, Failure> {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let fail = |error: io::Error| Failure::new(wanted, error);
        let listener = Listener::at_address(wanted).map_err(fail)?;
        let address = listener.address().map_err(fail)?.unwrap_or(wanted);
        let token = random().map_err(fail)?;
        let for_browser = random().map_err(fail)?;
        let url = |token: &Token| format!("http://{address}/{}/", token.reveal());
        let (url, url_for_browser) = (url(&token), url(&for_browser));
        let page = document(ASSETS[0].gzip, &files.entries()).into_bytes();
        let served = Served {
            files,
            page: page.into(),
            address,
            token,
            for_browser,
        };
        let running = listener.serve(Access::default(), served).map_err(fail)?;
        Ok(Self {
            url,
            url_for_browser,
            _running: running,
        })
    }
}

/// Returns a token that cannot be guessed.
fn random() -> io::Result<Token> {
    Token::new(&random_name()?).map_err(io::Error::other)
}

struct Served {
    files: Files,
    page: Arc<[u8]>,
    address: SocketAddr,
    token: Token,
    /// The token for clients of this user.
    for_browser: Token,
}

impl Pages for Served {
    type Pending = Infallible;

    fn effort(&self, request: &Request) -> Effort {
        match self.below_token(&request.path) {
            Some(path) if path.starts_with("/profiles/") && !request.query.is_empty() => {
                Effort::Exclusive
            }
            _ => Effort::Short,
        }
    }

    fn begin(&self, request: &Request, _: &(dyn Fn() -> bool + Sync)) -> Step<Infallible> {
        let answer = self.answer(request).unwrap_or_else(|refusal| refusal);
        answer
            .header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
            .header("Referrer-Policy", "no-referrer")
            .header("Cache-Control", "no-store")
            .into()
    }

    fn finish(&self, pending: Infallible) -> Answer {
        match pending {}
    }

    fn spawn(&self, name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>> {
        server_thread::spawn(name, work)
    }
}

impl Served {
    /// Returns the part of a path behind the token.
    fn below_token<'a>(&self, path: &'a str) -> Option<&'a str> {
        let (token, rest) = split(path);
        self.token.is(token).then_some(rest)
    }

    fn answer(&self, request: &Request) -> Result<Answer, Answer> {
        if !matches!(&*request.method, "GET" | "HEAD") {
            let refusal = Answer::line(405, "Method Not Allowed");
            return Err(refusal.header("Allow", "GET, HEAD"));
        }
        let Some(path) = self.below_token(&request.path) else {
            return self.for_browser(request);
        };
        let query = &*request.query;
        let asset = ASSETS
            .iter()
            .find(|asset| Some(asset.path) == path.strip_prefix('/'));
        if let Some(asset) = asset.filter(|asset| !asset.path.is_empty()) {
            let answer = found(asset.content_type, asset.gzip);
            return Ok(answer.header("Content-Encoding", "gzip"));
        }
        let known: &[&str] = match path.starts_with("/profiles/") {
            true => &["at", "from", "to"],
            false => &[],
        };
        let bad = |cause: String| Answer::line(400, &format!("Bad Request: {cause}"));
        query::refuse_others(query, known, |_| true).map_err(bad)?;
        let json = |body: Arc<[u8]>| found("application/json", body);
        let answer = match path {
            "" => return Ok(self.to_page()),
            "/" => Some(found(ASSETS[0].content_type, Arc::clone(&self.page))),
            path => match (split(path), number(split(path).1)) {
                (("profiles", _), Some(number)) => {
                    self.profile(number, moment(query).map_err(bad)?)
                }
                (("history", _), Some(number)) => self.files.history(number).map(json),
                (("growth", _), Some(number)) => self.files.growth(number).map(json),
                _ => None,
            },
        };
        answer.ok_or_else(|| Answer::line(404, "404 page not found"))
    }

    fn profile(&self, number: usize, moment: Moment) -> Option<Answer> {
        Some(match self.files.profile(number, moment)? {
            Ok(profile) => found("application/octet-stream", profile),
            Err(failure) => Answer::line(404, &failure.to_string()),
        })
    }

    /// Leads the browser of this user to the page. Refuses all others.
    fn for_browser(&self, request: &Request) -> Result<Answer, Answer> {
        let is_right = self.for_browser.is(split(&request.path).0);
        let peer = request.peer.filter(|_| is_right);
        let user = peer.and_then(|peer| sockets::user_of_client(peer, self.address));
        match user == Some(rustix::process::geteuid().as_raw()) {
            true => Ok(self.to_page()),
            false => Err(Answer::line(
                403,
                "Forbidden: open the address that plimsoll view printed, with its token",
            )),
        }
    }

    fn to_page(&self) -> Answer {
        let page = format!("/{}/", self.token.reveal());
        Answer::line(302, "Found").header("Location", page)
    }
}

/// Splits a path behind its first part.
fn split(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Parses `/N`.
fn number(path: &str) -> Option<usize> {
    let digits = path.strip_prefix('/')?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// Reads the parameters `at`, or `from` and `to`: seconds since 1970.
fn moment(text: &str) -> Result<Moment, String> {
    let value = |name: &str| -> Result<Option<u64>, String> {
        let text = query::first(text, name);
        if text.is_empty() {
            return Ok(None);
        }
        let seconds = text.parse().ok();
        let seconds = seconds.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
        match seconds {
            Some(seconds) => Ok(Some((seconds * 1e9) as u64)),
            None => Err(format!(
                "{name}={text} is not a number of seconds since 1970"
            )),
        }
    };
    match (value("at")?, value("from")?, value("to")?) {
        (Some(at), None, None) => Ok(Moment::At(at)),
        (None, Some(from), Some(to)) => Ok(Moment::Between(from, to)),
        (None, None, None) => Ok(Moment::End),
        (Some(_), ..) => Err("at excludes from and to".to_owned()),
        _ => Err("from and to belong together".to_owned()),
    }
}

fn found(content_type: &str, body: impl Into<Body>) -> Answer {
    Answer::new(200, content_type, body)
}
