//! Parses the head of a request, and applies the rules of [`access`] to it.

use std::net::SocketAddr;

use crate::access::{self, Access, Refused};
use crate::pages::Request;

/// Maximum length of a request's head, in bytes.
pub const LONGEST_HEAD: usize = 16 * 1024;

/// Maximum length of a body that a page reads, in bytes: Go's tool sends some ten thousand addresses.
pub const LONGEST_BODY: usize = 256 * 1024;

/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 100;

const NO_TOKEN: &str =
    "Unauthorized: send the token of the setting http_token, as bearer token or password";

/// Up to this length, a head is parsed after each read, and then after each line. A client that
/// sends single bytes costs little, and garbage is refused at once.
const ALWAYS_PARSED: usize = 256;

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Head {
    /// The request, without its body.
    pub request: Request,
    /// The length of the head, in bytes.
    pub length: usize,
    /// The header `Content-Length`; 0 without it, `None` if it is not a number or the body has no stated length.
    pub body_length: Option<usize>,
}

/// Parses the head as far as it was received. The last `new` bytes have not been parsed before.
/// Returns `None` if the head is incomplete.
pub fn parse(
    head: &[u8],
    new: usize,
    access: &Access,
    peer: Option<SocketAddr>,
) -> Option<Result<Head, Refused>> {
    let is_full = head.len() >= LONGEST_HEAD;
    let has_line = head[head.len() - new..].contains(&b'\n');
    if !has_line && !is_full && head.len() > ALWAYS_PARSED {
        return None;
    }
    let refuse = |status, text: &str| Some(Err((status, text.to_owned())));
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST_HEAD => {
            let checked = checked(&request, access, peer);
            Some(checked.map(|checked| Head {
                request: checked,
                length,
                body_length: body_length(&request),
            }))
        }
        Ok(httparse::Status::Partial) if !is_full => None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            refuse(431, "Request Header Fields Too Large")
        }
        Err(_) => refuse(400, "Bad Request"),
    }
}

/// Returns the length of the body as the headers state it; `None` if they do not.
fn body_length(parsed: &httparse::Request<'_, '_>) -> Option<usize> {
    let mut length = None;
    for header in parsed.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return None;
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let digits = std::str::from_utf8(header.value).ok()?.trim();
            if length.is_some() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            length = Some(digits.parse().ok()?);
        }
    }
    Some(length.unwrap_or(0))
}

/// Checks the origin of a request, and its token. Returns the parts that pages use.
fn checked(
    parsed: &httparse::Request<'_, '_>,
    access: &Access,
    peer: Option<SocketAddr>,
) -> Result<Request, Refused> {
    let (Some(method), Some(target)) = (parsed.method, parsed.path) else {
        return Err((400, "Bad Request".into()));
    };
    let values = |name: &'static str| {
        let headers = parsed.headers.iter();
        let of_name = headers.filter(move |header| header.name.eq_ignore_ascii_case(name));
        of_name.map(|header| String::from_utf8_lossy(header.value))
    };
    let (authority, target) = split_target(target);
    let hosts: Vec<_> = values("host").collect();
    if hosts.len() > 1 {
        return Err((400, "Bad Request: several Host headers".into()));
    }
    for host in hosts.iter().map(|host| &**host).chain(authority) {
        if !access.is_local {
            access::check_host(host.trim(), &access.names)?;
        }
    }
    let host = hosts.first().map(|host| host.trim());
    let sites: Vec<_> = values("sec-fetch-site").collect();
    let origins: Vec<_> = values("origin").collect();
    access::check_site(
        sites.iter().map(|site| site.trim()),
        origins.iter().map(|origin| origin.trim()),
        host,
        &access.names,
    )?;
    if let Some(token) = &access.token {
        let values: Vec<_> = values("authorization").collect();
        if !token.is_among(values.iter().map(|value| &**value)) {
            return Err((401, NO_TOKEN.into()));
        }
    }
    let target = target.split('#').next().unwrap_or("");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        body: Vec::new(),
        accept: values("accept").collect::<Vec<_>>().join(","),
        host: authority.or(host).and_then(access::host_of),
        peer,
    })
}

/// Splits a target into authority and path. The request of a proxy has an authority.
fn split_target(target: &str) -> (Option<&str>, &str) {
    const SCHEME: &str = "http://";
    let scheme = target.get(..SCHEME.len()).unwrap_or("");
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return (None, target);
    }
    let rest = &target[SCHEME.len()..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    (Some(authority), if path.is_empty() { "/" } else { path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_targets_have_an_authority_and_a_path() {
        for (target, authority, path) in [
            ("/a?b", None, "/a?b"),
            ("*", None, "*"),
            ("http://h", Some("h"), "/"),
            ("HTTP://h:1/a?b", Some("h:1"), "/a?b"),
            ("http://h?b", Some("h"), "?b"),
            ("http://u@h/a", Some("u@h"), "/a"),
            ("http:///a", Some(""), "/a"),
            ("https://h/a", None, "https://h/a"),
            ("http:/", None, "http:/"),
            ("/http://h/", None, "/http://h/"),
        ] {
            assert_eq!(split_target(target), (authority, path), "{target}");
        }
    }

    fn parsed(lines: &str) -> Result<Request, u16> {
        let head = format!("{lines}\r\n\r\n");
        let access = Access::default();
        let parsed = parse(head.as_bytes(), head.len(), &access, None);
        let parsed = parsed.expect("it is complete");
        parsed.map(|head| head.request).map_err(|refused| refused.0)
    }

    #[test]
    fn the_host_of_a_request_is_that_of_an_absolute_target_or_the_header() {
        let host = |lines: &str| parsed(lines).expect("it is allowed").host;
        assert_eq!(host("GET / HTTP/1.0"), None);
        let both = "GET http://127.0.0.2:1/a HTTP/1.1\r\nHost: localhost:6060";
        assert_eq!(host(both).as_deref(), Some("127.0.0.2"));
        let header = "GET / HTTP/1.1\r\nhost:  LOCALHOST:6060 ";
        assert_eq!(host(header).as_deref(), Some("localhost"));
    }

    #[test]
    fn the_length_of_a_body_is_one_number() {
        let length = |lines: &str| {
            let head = format!("POST / HTTP/1.1\r\n{lines}\r\n");
            let access = Access::default();
            let parsed = parse(head.as_bytes(), head.len(), &access, None);
            let parsed = parsed.expect("it is complete").expect("it is allowed");
            assert_eq!(parsed.length, head.len());
            parsed.body_length
        };
        assert_eq!(length(""), Some(0));
        assert_eq!(length("content-length: 12\r\n"), Some(12));
        for lines in [
            "Content-Length: +1\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: 99999999999999999999999\r\n",
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        ] {
            assert_eq!(length(lines), None, "{lines}");
        }
    }

    /// A value with a line end could become a header of the answer.
    #[test]
    fn control_characters_in_headers_are_refused() {
        for byte in (0..b' ').chain([0x7f]).filter(|byte| *byte != b'\t') {
            let byte = char::from(byte);
            for lines in [
                format!("GET / HTTP/1.1\r\nHost: local{byte}host"),
                format!("GET / HTTP/1.1\r\nHo{byte}st: localhost"),
                format!("GET /a{byte}b HTTP/1.1\r\nHost: localhost"),
            ] {
                // Two line ends begin the next header, which has no colon.
                assert_eq!(parsed(&lines).err(), Some(400), "{lines:?}");
            }
        }
        let folded = "GET / HTTP/1.1\r\nHost: localhost\r\n evil.example";
        assert_eq!(parsed(folded).err(), Some(400));
    }
}
