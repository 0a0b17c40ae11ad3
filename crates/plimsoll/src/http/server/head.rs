//! Parses the head of a request.

use super::super::access::{self, Access};
use crate::http::pages::{self, Effort};

/// Maximum length of a request's head, in bytes.
pub(super) const LONGEST_HEAD: usize = 16 * 1024;

/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 100;

/// Up to this length, a head is parsed after each read, and then after each line. A client that
/// sends single bytes costs little, and garbage is refused at once.
const ALWAYS_PARSED: usize = 256;

/// The parts of a request that the server uses.
pub(super) struct Received {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) accept: String,
}

/// The status and the line with which a request is refused.
pub(super) type Refusal = (u16, String);

/// Parses the head as far as it was received. The last `new` bytes have not been parsed before.
/// Returns `None` if the head is incomplete.
pub(super) fn parse(head: &[u8], new: usize, access: &Access) -> Option<Result<Received, Refusal>> {
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
            Some(Received::new(&request, access))
        }
        Ok(httparse::Status::Partial) if !is_full => None,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            refuse(431, "Request Header Fields Too Large")
        }
        Err(_) => refuse(400, "Bad Request"),
    }
}

impl Received {
    fn new(parsed: &httparse::Request<'_, '_>, access: &Access) -> Result<Self, Refusal> {
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
        let sites: Vec<_> = values("sec-fetch-site").collect();
        let origins: Vec<_> = values("origin").collect();
        access::check_site(
            sites.iter().map(|site| site.trim()),
            origins.iter().map(|origin| origin.trim()),
            hosts.first().map(|host| host.trim()),
            &access.names,
        )?;
        if let Some(token) = &access.token {
            let values: Vec<_> = values("authorization").collect();
            token.check(values.iter().map(|value| &**value))?;
        }
        let target = target.split('#').next().unwrap_or("");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Ok(Self {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            accept: values("accept").collect::<Vec<_>>().join(","),
        })
    }

    pub(super) fn effort(&self) -> Effort {
        match &*self.method {
            "GET" | "HEAD" => pages::effort(&self.path, &self.query),
            // Refused, whatever the path is.
            _ => Effort::Short,
        }
    }
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
}
