//! A client for the pages of running programs and for servers of files: HTTP, with limits on body sizes
//! and times. HTTPS with the feature `tls`.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use plimsoll_server::token::Token;
use ureq::{Agent, Error};

use crate::failure::Failure;

/// The maximum length of a body in bytes, after decompression.
const MAX_BODY: u64 = 1 << 30;

/// The maximum length of a response's head in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The number of bytes of a response to `put` that are read.
const MAX_REFUSAL: u64 = 4 << 10;

/// The maximum number of redirects that are followed.
const MAX_REDIRECTS: usize = 5;

/// The environment variable with the token that the pages require: the token, or `file:PATH`.
const TOKEN: &str = "PLIMSOLL_TOKEN";

/// The interval between progress reports.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// Returns the URL of a profile if `name` is a URL, or a bare `host:port` that is not a file.
/// Without a path, the URL is completed to the page of the profile `default`.
pub fn profile_url(name: &str, default: &str) -> Option<String> {
    let url = base_url(name)?;
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    match path {
        "" | "/" => Some(format!("{scheme}://{authority}/debug/pprof/{default}")),
        _ => Some(url),
    }
}

/// Returns `name` as a URL. Adds `http://` to a bare `host:port`, with or without a path. Returns
/// `None` for other names, and for names of existing files.
pub fn base_url(name: &str) -> Option<String> {
    if name.starts_with("http://") || name.starts_with("https://") {
        return Some(name.to_owned());
    }
    let (authority, _) = name.split_once('/').unwrap_or((name, ""));
    let (host, port) = authority.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.parse::<u16>().is_ok();
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.ends_with(']'),
        None => host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    if !is_port || !is_host || std::path::Path::new(name).exists() {
        return None;
    }
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let rest = &name[authority.len()..];
    Some(format!("http://{host}:{port}{rest}"))
}

/// How a server became known. This decides what it gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A program whose address the user named: it gets the token, without a proxy.
    Named,
    /// A program whose address was found, as among the ports of a process. Any process may be the one
    /// behind the address, so it gets no token. It cannot redirect to another server.
    Found,
    /// A server of files, not a program with Plimsoll: it gets no token, and requests pass through the
    /// proxy that the environment names.
    Files,
}

/// Fetches the page at a URL and returns it decompressed.
///
/// # Errors
/// No complete page arrives within `timeout`, or the status is not 200.
pub fn get(server: Server, url: &str, timeout: Duration) -> Result<Vec<u8>, Failure> {
    get_with_progress(server, url, timeout, |_| {})
}

/// Like [`get`], but calls `report` several times a second with the number of body bytes so far.
///
/// # Errors
/// The errors of [`get`].
pub fn get_with_progress(
    server: Server,
    url: &str,
    timeout: Duration,
    report: impl FnMut(u64),
) -> Result<Vec<u8>, Failure> {
    match request(server, url, timeout, report)? {
        Answer { status: 200, body } => Ok(body),
        Answer { status, body } => Err(Failure::new(url, refusal(status, &body))),
    }
}

/// A response, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, such as 200.
    pub status: u16,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

/// Requests a page. Calls `report` as [`get_with_progress`] does.
///
/// # Errors
/// No complete response arrives within `timeout`.
pub fn request(
    server: Server,
    url: &str,
    timeout: Duration,
    mut report: impl FnMut(u64),
) -> Result<Answer, Failure> {
    let fail = |cause: String| Failure::new(url, cause);
    let received = Arc::new(AtomicU64::new(0));
    let (send, answer) = channel();
    let client = {
        let (url, received) = (url.to_owned(), Arc::clone(&received));
        // Sending fails only if this function has panicked.
        move || {
            send.send(fetch(server, &url, timeout, &received))
                .unwrap_or(())
        }
    };
    std::thread::Builder::new()
        .name("plimsoll-http".to_owned())
        .spawn(client)
        .map_err(|error| fail(format!("cannot create a thread for the request: {error}")))?;
    loop {
        let answer = answer.recv_timeout(REPORT_EVERY);
        report(received.load(Ordering::Relaxed));
        match answer {
            Ok(answer) => return answer.map_err(fail),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(fail(
                    "the client thread ended without a response".to_owned(),
                ));
            }
        }
    }
}

/// Sends `body` to a URL by the method PUT. Follows no redirects.
///
/// # Errors
/// No complete response arrives within `timeout`. The failure names `shown` instead of the URL, which
/// may contain a secret.
pub fn put(
    url: &str,
    shown: &str,
    headers: &[(&str, String)],
    body: &[u8],
    timeout: Duration,
) -> Result<Answer, Failure> {
    let fail = |cause: String| Failure::new(shown, cause);
    check(url).map_err(fail)?;
    let mut request = agent(Server::Files, timeout).put(url);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let describe = |error: Error| match error {
        Error::Timeout(_) => fail(format!("no response arrived within {timeout:?}")),
        error => fail(describe(error, url)),
    };
    let mut answer = request.send(body).map_err(describe)?;
    let status = answer.status().as_u16();
    // Of a refusal, only the beginning is shown.
    let reader = answer.body_mut().as_reader().take(MAX_REFUSAL);
    let body = read(reader, &AtomicU64::new(0)).unwrap_or_default();
    Ok(Answer { status, body })
}

/// Rejects URLs that this client does not support.
fn check(url: &str) -> Result<(), String> {
    let is_https = url.starts_with("https://");
    if is_https && !cfg!(feature = "tls") {
        return Err(NO_HTTPS.to_owned());
    }
    if !is_https && !url.starts_with("http://") {
        return Err("the URL does not begin with http://".to_owned());
    }
    if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("the URL contains blanks or control characters".to_owned());
    }
    let authority = authority(url);
    if authority.contains('@') {
        return Err(format!(
            "user names and passwords in URLs are not supported; set {TOKEN} to the token"
        ));
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err("the URL contains no host".to_owned());
    }
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.contains(']') && port.parse::<u16>().is_err() => {
            Err(format!("{port} is not a port"))
        }
        _ => Ok(()),
    }
}

/// Returns the host and port in a URL.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

const NO_HTTPS: &str = "https is not supported by this build, which lacks the feature tls; fetch it with another \
                        program, as in `curl -o profile.pb.gz URL`, and give the file";

/// Returns the scheme, host and port of a URL: the servers that get the token have the same.
fn origin(url: &str) -> &str {
    let scheme = url.find("://").map_or(0, |at| at + "://".len());
    let rest = &url[scheme..];
    &url[..scheme + rest.find(['/', '?', '#']).unwrap_or(rest.len())]
}

/// Returns the token in the environment; `None` if the variable is unset or empty.
fn token() -> Result<Option<Token>, String> {
    let Some(text) = std::env::var_os(TOKEN).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let token = Token::new(&text.to_string_lossy());
    token.map(Some).map_err(|why| format!("{TOKEN}: {why}"))
}

/// Returns a client whose requests end after `timeout`.
fn agent(server: Server, timeout: Duration) -> Agent {
    Agent::config_builder()
        .proxy(match server {
            Server::Named | Server::Found => None,
            Server::Files => ureq::Proxy::try_from_env(),
        })
        .timeout_global(Some(timeout))
        // A server may close a connection at any time after its answer: each redirect has a new one.
        .max_idle_connections(0)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_response_header_size(MAX_HEAD)
        .http_status_as_error(false)
        .user_agent(concat!("plimsoll/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn fetch(
    server: Server,
    url: &str,
    timeout: Duration,
    received: &AtomicU64,
) -> Result<Answer, String> {
    let began = Instant::now();
    let agent = agent(server, timeout);
    let describe = |error: Error| match error {
        Error::Timeout(_) => match received.load(Ordering::Relaxed) {
            0 => format!("no response arrived within {:.1?}", began.elapsed()),
            bytes => format!(
                "the response is incomplete after {:.1?}: {bytes} bytes arrived",
                began.elapsed()
            ),
        },
        error => describe(error, url),
    };
    let mut token = match server {
        Server::Named => token()?,
        Server::Found | Server::Files => None,
    };
    // Redirects are followed here, because each URL must be checked.
    let first = url;
    let mut url = url.to_owned();
    let mut redirects = 0;
    let mut is_withheld = false;
    let mut answer = loop {
        check(&url)?;
        if origin(&url) != origin(first) {
            if server == Server::Found {
                return Err(format!("it redirects to another server: {url}"));
            }
            // For the rest of the way: the other server chose the next URL.
            is_withheld |= token.take().is_some();
        }
        let mut request = agent.get(&url);
        if let Some(token) = &token {
            request = request.header("Authorization", format!("Bearer {}", token.reveal()));
        }
        let answer = request.call().map_err(describe)?;
        let location = answer.headers().get("location");
        let Some(location) = location.filter(|_| answer.status().is_redirection()) else {
            break answer;
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        url = match location.strip_prefix('/') {
            Some(_) => format!("{}{location}", origin(&url)),
            None => location.into_owned(),
        };
        redirects += 1;
        if redirects > MAX_REDIRECTS {
            return Err("too many redirects".to_owned());
        }
    };
    let status = answer.status().as_u16();
    if status == 401 && is_withheld {
        return Err(format!(
            "it redirects to {url}, which requires a token; the token is sent only to a server that you \
             name, so give that URL"
        ));
    }
    if answer.body().content_length() > Some(MAX_BODY) {
        return Err(too_long());
    }
    // One byte more than allowed, so that `read` detects a body that is too long.
    let reader = answer.body_mut().with_config().limit(MAX_BODY + 1).reader();
    let body = read(reader, received).map_err(|error| describe(error.into()))?;
    Ok(Answer { status, body })
}

fn read(mut from: impl Read, received: &AtomicU64) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(body),
            Ok(read) => body.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        received.store(body.len() as u64, Ordering::Relaxed);
        if body.len() as u64 > MAX_BODY {
            return Err(Error::BodyExceedsLimit(MAX_BODY).into_io());
        }
    }
}

/// Describes a response whose status is not 200, with the first line of its body.
pub fn refusal(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let text = text.lines().next().unwrap_or_default().trim();
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    if text.is_empty() || text.starts_with('<') {
        format!("the response has status {status}")
    } else {
        format!("the response has status {status}: {text}")
    }
}

/// Describes an error for the user.
fn describe(error: Error, url: &str) -> String {
    match error {
        Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                format!("no server listens on {}", authority(url))
            }
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                "the response is truncated".to_owned()
            }
            _ => error.to_string(),
        },
        Error::HostNotFound => "the host name has no address".to_owned(),
        Error::BodyExceedsLimit(_) => too_long(),
        Error::LargeResponseHeader(..) => "the response header is too long".to_owned(),
        Error::Decompress(_, error) => format!("the response does not match its header: {error}"),
        Error::Protocol(error) => format!("the response is not HTTP: {error}"),
        error => error.to_string(),
    }
}

fn too_long() -> String {
    format!("the response is longer than {} MiB", MAX_BODY >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_with_a_host_and_a_port() {
        for (url, expected) in [
            ("http://a:1/b", "http://a:1"),
            ("http://a:1", "http://a:1"),
            ("https://a:1?b/c", "https://a:1"),
            ("http://a#b", "http://a"),
            ("http://[::1]:80/", "http://[::1]:80"),
        ] {
            assert_eq!(origin(url), expected);
        }
        // Otherwise the token would leave its encrypted connection.
        assert_ne!(origin("https://a:1/b"), origin("http://a:1/b"));
    }
}
