//! Addresses of servers.

/// The host, port and path of an address `http://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// Host and port as in the address, for the header `Host`.
    pub(super) authority: String,
    /// The host, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path without a slash at its end.
    pub(super) path: String,
}

impl Address {
    /// Parses an address.
    ///
    /// # Errors
    /// The part that is not usable, and the reason.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        if starts_with_ignoring_case(url, "https://") {
            return Err(
                "https is not supported: push to an agent or a collector by http, which can forward by https".into(),
            );
        }
        if !starts_with_ignoring_case(url, SCHEME) {
            return Err("it does not begin with http://".into());
        }
        let rest = &url[SCHEME.len()..];
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it has characters that must be escaped".into());
        }
        if rest.contains(['?', '#']) {
            return Err("it has a query or a fragment".into());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("it has a user name: use basic_auth instead".into());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("a bracket is not closed")?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() {
            return Err("it has no host".into());
        }
        let port = match port.strip_prefix(':') {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port
                .parse()
                .map_err(|_| "its port is not a number of 16 bits")?,
            None if port.is_empty() => 80,
            _ => return Err("its port is not a number of 16 bits".into()),
        };
        Ok(Self {
            authority: authority.into(),
            host: host.into(),
            port,
            path: path.trim_end_matches('/').into(),
        })
    }
}

const SCHEME: &str = "http://";

fn starts_with_ignoring_case(text: &str, start: &str) -> bool {
    let begin = text.get(..start.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_may_have_port_and_path() {
        for (url, host, port, path) in [
            ("http://pyroscope:4040", "pyroscope", 4040, ""),
            ("HTTP://h/", "h", 80, ""),
            ("http://h/a/b//", "h", 80, "/a/b"),
            ("http://127.0.0.1:1/x", "127.0.0.1", 1, "/x"),
            ("http://[::1]:4318", "::1", 4318, ""),
            ("http://[::1]/x", "::1", 80, "/x"),
        ] {
            let address = Address::parse(url).unwrap();
            let found = (&*address.host, address.port, &*address.path);
            assert_eq!(found, (host, port, path), "{url}");
        }
    }

    #[test]
    fn unusable_addresses_have_a_reason() {
        for (url, reason) in [
            ("https://profiles.example.com", "agent"),
            ("HTTPS://h", "agent"),
            ("pyroscope:4040", "http://"),
            ("", "http://"),
            ("http://", "host"),
            ("http://:80", "host"),
            ("http://[]:80", "host"),
            ("http://[::1", "bracket"),
            ("http://[::1]x", "port"),
            ("http://h:", "port"),
            ("http://h:65536", "port"),
            ("http://h:+1", "port"),
            ("http://h:1:2", "port"),
            ("http://user:secret@h", "basic_auth"),
            ("http://h/a?b", "query"),
            ("http://h/a b", "escaped"),
            ("http://h\r\nX: y", "escaped"),
            ("http://h/\u{e9}", "escaped"),
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
        }
    }
}
