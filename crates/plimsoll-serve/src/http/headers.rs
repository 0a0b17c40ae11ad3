//! The headers of a request that the pages use, and the checks of its origin.

use std::net::IpAddr;

use plimsoll_server::access::{self, Names, Refused};

/// Headers that a reverse proxy adds: the peer is then not the client.
const OF_PROXIES: [&str; 3] = ["forwarded", "x-forwarded-for", "x-real-ip"];

/// The values of the headers that the pages use, in the order in which they were received.
#[derive(Clone, Debug, Default)]
pub(super) struct Headers {
    pub(super) accept: Option<String>,
    hosts: Vec<String>,
    origins: Vec<String>,
    sites: Vec<String>,
    /// The first header of a proxy.
    proxy: Option<&'static str>,
}

/// The peers that are admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Peers {
    #[default]
    All,
    /// Only peers on this machine. The address is `None` if it is unknown.
    Loopback(Option<IpAddr>),
}

impl Headers {
    /// Adds a header. Ignores headers that the pages do not use.
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let value = || String::from_utf8_lossy(value).trim().to_owned();
        if is("accept") {
            let accept = self.accept.get_or_insert_default();
            if !accept.is_empty() {
                accept.push(',');
            }
            accept.push_str(&value());
        } else if is("host") {
            self.hosts.push(value());
        } else if is("origin") {
            self.origins.push(value());
        } else if is("sec-fetch-site") {
            self.sites.push(value());
        } else if self.proxy.is_none() {
            self.proxy = OF_PROXIES.into_iter().find(|proxy| is(proxy));
        }
    }

    /// Checks the origin of a request. The names of the program's host are not known, so only
    /// requests of [`Peers::Loopback`] need a host that is an address or `localhost`.
    ///
    /// # Errors
    /// 403 for a page of another site, and for a peer that is not admitted; 400 for an invalid host.
    pub(super) fn check(&self, peers: Peers) -> Result<(), Refused> {
        let names = Names::default();
        if let Peers::Loopback(peer) = peers {
            self.check_peer(peer)?;
            for host in &self.hosts {
                access::check_host(host, &names)?;
            }
        }
        access::check_site(
            self.sites.iter().map(String::as_str),
            self.origins.iter().map(String::as_str),
            self.hosts.first().map(String::as_str),
            &names,
        )
    }

    fn check_peer(&self, peer: Option<IpAddr>) -> Result<(), Refused> {
        let why = match (peer, self.proxy) {
            (None, _) => "the server does not report the address of the client".to_owned(),
            (Some(peer), _) if !peer.to_canonical().is_loopback() => {
                format!("{peer} is not a loopback address")
            }
            (_, Some(proxy)) => format!("a proxy sent this request (header {proxy})"),
            _ => return Ok(()),
        };
        let text = format!("Forbidden: only clients on this machine may read the pages: {why}");
        Err((403, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in pairs {
            headers.add(name, value.as_bytes());
        }
        headers
    }

    fn status(pairs: &[(&str, &str)], peer: Option<&str>) -> Result<(), u16> {
        let peer = peer.map(|peer| peer.parse().unwrap());
        let checked = headers(pairs).check(Peers::Loopback(peer));
        checked.map_err(|refused| refused.0)
    }

    #[test]
    fn only_loopback_peers_without_a_proxy_are_admitted() {
        for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(status(&[], Some(peer)), Ok(()), "{peer}");
            for header in ["Forwarded", "X-Forwarded-For", "x-real-ip"] {
                let refused = status(&[(header, "127.0.0.1")], Some(peer));
                assert_eq!(refused, Err(403), "{header}");
            }
        }
        for peer in [
            "10.0.0.1",
            "0.0.0.0",
            "::",
            "fe80::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
        ] {
            assert_eq!(status(&[], Some(peer)), Err(403), "{peer}");
        }
        assert_eq!(status(&[], None), Err(403));
    }

    /// Otherwise the page of another site could resolve its own name to a loopback address.
    #[test]
    fn the_host_that_a_loopback_peer_names_is_checked() {
        for (host, expected) in [
            ("localhost:80", Ok(())),
            ("127.0.0.1", Ok(())),
            ("[::1]:6060", Ok(())),
            ("evil.example", Err(403)),
            ("a b", Err(400)),
        ] {
            let found = status(&[("Host", host)], Some("127.0.0.1"));
            assert_eq!(found, expected, "{host}");
        }
        let two = [("host", "localhost"), ("HOST", "evil.example")];
        assert_eq!(status(&two, Some("::1")), Err(403));
        let all = headers(&[("Host", "app.example")]).check(Peers::All);
        assert_eq!(all, Ok(()), "the names are not known");
    }

    #[test]
    fn values_are_joined_and_need_not_be_text() {
        let mut headers = headers(&[("Accept", " a "), ("ACCEPT", "b"), ("x", "c")]);
        assert_eq!(headers.accept.as_deref(), Some("a,b"));
        headers.add("origin", b"\xff\xfe");
        headers.add("", b"");
        assert_eq!(
            headers.check(Peers::All).map_err(|refused| refused.0),
            Err(403)
        );
    }
}
