//! The requests from web browsers that a server refuses.
//!
//! A web page of any site can make its reader's browser send requests here. They take capacity. The
//! page also reads the answers if its own host name resolves to this address ("DNS rebinding").
//! Browsers state the origin of a request: `Host` is the name that was resolved, `Sec-Fetch-Site`
//! and `Origin` identify the site of the page. Current browsers send `Sec-Fetch-Site` to loopback
//! addresses and by https only. A request without these headers passes: if a page sent it, the browser
//! keeps the answer from that page.
//!
//! An IP address as `Host` always passes: no name was resolved, so the page came from that address.
//! A name passes if no foreign name server can resolve it: `localhost`, the names below it, and the
//! configured names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::quoted::quoted;
use crate::token::Token;

/// The names by which a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// In lower case and without a trailing dot.
    names: Vec<String>,
    /// The end of the refusal of another name: how to add it.
    advice: &'static str,
}

impl Names {
    /// Creates an empty list. `advice` ends the refusal of another name, such as
    /// `, or add the name to the setting x`.
    pub fn with_advice(advice: &'static str) -> Self {
        Self {
            names: Vec::new(),
            advice,
        }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// A description of the mistake if it is not a host name; a host name has no port.
    pub fn add(&mut self, name: &str) -> Result<(), &'static str> {
        if name.contains(':') {
            return Err("has a port or is an address; give a name such as host.example.com");
        }
        match Host::parse(name) {
            Some(Host::Name(name)) => self.names.push(name),
            // Addresses always pass.
            Some(Host::Address { .. }) => {}
            None => return Err("is not a host name such as host.example.com"),
        }
        Ok(())
    }

    /// Adds the host in `host:port` if it is a name.
    pub fn add_listening(&mut self, address: &str) {
        if let Some(Host::Name(name)) = Host::parse(address) {
            self.names.push(name);
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }
}

/// The requests that a server answers.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The names that a request may have as its host, beside addresses and loopback names.
    pub names: Names,
    /// The token that a client must send, if any.
    pub token: Option<Token>,
    /// Whether clients connect by a path, so that the host they name means nothing.
    pub is_local: bool,
}

/// The host in `host:port`.
#[derive(Debug, PartialEq, Eq)]
enum Host {
    Address {
        is_loopback: bool,
        text: String,
    },
    /// A name in lower case and without a trailing dot.
    Name(String),
}

impl Host {
    fn parse(authority: &str) -> Option<Self> {
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => match authority.find(':') {
                Some(colon) => authority.split_at(colon),
                None => (authority, ""),
            },
        };
        let is_port = |port: &str| {
            let digits = port.strip_prefix(':');
            digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
        };
        if !port.is_empty() && !is_port(port) {
            return None;
        }
        let text = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        if authority.starts_with('[') {
            let address: Ipv6Addr = host.split('%').next()?.parse().ok()?;
            let is_loopback = IpAddr::from(address).to_canonical().is_loopback();
            return Some(Self::Address { is_loopback, text });
        }
        let usable = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if text.is_empty() || !text.bytes().all(usable) {
            return None;
        }
        // Browsers and the C library read a name that ends with a number as an address: `127.1`.
        let last = text.rsplit('.').next()?;
        let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
        if last.is_empty() || !is_number {
            return Some(Self::Name(text));
        }
        let address: Option<Ipv4Addr> = text.parse().ok();
        let is_loopback = address.is_some_and(|address| address.is_loopback());
        Some(Self::Address { is_loopback, text })
    }

    /// Reports whether the host always is this machine.
    fn is_loopback(&self) -> bool {
        match self {
            Self::Address { is_loopback, .. } => *is_loopback,
            Self::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }

    fn is_allowed(&self, names: &Names) -> bool {
        match self {
            Self::Address { .. } => true,
            Self::Name(name) => self.is_loopback() || names.contains(name),
        }
    }
}

/// The refusal of a request: the status, and a line with the reason.
pub type Refused = (u16, String);

/// Checks the host that a request names: the value of `Host`, or the host in an absolute target.
///
/// # Errors
/// 400 if the host is invalid, and 403 if it is a name that is not among `names`.
pub fn check_host(host: &str, names: &Names) -> Result<(), Refused> {
    let Some(parsed) = Host::parse(host) else {
        let text = format!("Bad Request: {} is not a host", quoted(host));
        return Err((400, text));
    };
    if parsed.is_allowed(names) {
        return Ok(());
    }
    let text = format!(
        "Forbidden: unknown host name {}: use the address{}",
        quoted(host),
        names.advice
    );
    Err((403, text))
}

/// Returns the host in `host:port` as a part of a URL. `None` if it is invalid.
pub fn host_of(authority: &str) -> Option<String> {
    Some(match Host::parse(authority)? {
        Host::Address { text, .. } if authority.starts_with('[') => {
            // The name of the client's network interface means nothing here.
            let address: Ipv6Addr = text.split('%').next()?.parse().ok()?;
            format!("[{address}]")
        }
        Host::Address { text, .. } | Host::Name(text) => text,
    })
}

/// Checks that the request does not come from a page of another site. `fetch_sites` and `origins`
/// are the values of `Sec-Fetch-Site` and `Origin`, at most one each.
///
/// # Errors
/// 403 if it comes from a page of another site.
pub fn check_site<'a>(
    mut fetch_sites: impl Iterator<Item = &'a str>,
    mut origins: impl Iterator<Item = &'a str>,
    host: Option<&str>,
    names: &Names,
) -> Result<(), Refused> {
    let forbid = |header: &str, value: &str| {
        let text = format!(
            "Forbidden: a page of another site sent this request ({header}: {}); open its address \
             directly",
            quoted(value)
        );
        Err((403, text))
    };
    if let Some(site) = fetch_sites.find(|site| site.eq_ignore_ascii_case("cross-site")) {
        return forbid("Sec-Fetch-Site", site);
    }
    let host = host.and_then(Host::parse);
    match origins.find(|origin| !is_own(origin, host.as_ref(), names)) {
        Some(origin) => forbid("Origin", origin),
        None => Ok(()),
    }
}

/// Reports whether pages of that origin belong to this machine or this program. Ports do not
/// matter, as with cookies.
fn is_own(origin: &str, host: Option<&Host>, names: &Names) -> bool {
    let (scheme, authority) = origin.split_once("://").unwrap_or(("", ""));
    let Some(origin) = Host::parse(authority) else {
        return false;
    };
    let is_name = matches!(&origin, Host::Name(name) if names.contains(name));
    let is_same =
        host.is_some_and(|host| *host == origin || (host.is_loopback() && origin.is_loopback()));
    matches!(scheme, "http" | "https") && (is_same || is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.add("Debug.Example.com.").unwrap();
        names.add("app").unwrap();
        names
    }

    #[test]
    fn addresses_loopback_names_and_configured_names_are_hosts_of_the_program() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:6060",
            "127.1:6060",
            "0x7f.1",
            "2130706433:80",
            "[::1]",
            "[::1]:6060",
            "[fe80::1%eth0]:6060",
            "10.1.2.3:6060",
            "[2001:db8::7]:80",
            "localhost",
            "LocalHost.:6060",
            "a.b.localhost:1",
            "debug.example.com",
            "DEBUG.example.COM.:443",
            "app:6060",
            "app:",
        ] {
            assert_eq!(check_host(host, &names()), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:6060",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "1.2.3.4.x",
            "xlocalhost",
            "x.debug.example.com",
            "example.com",
            "app.",
            "test",
        ] {
            let known = host == "app.";
            let status = check_host(host, &names()).map_err(|refused| refused.0);
            assert_eq!(status, if known { Ok(()) } else { Err(403) }, "{host}");
        }
        for host in [
            "",
            ":6060",
            ".",
            "a b",
            "a,b",
            "user@127.0.0.1",
            "127.0.0.1:80:80",
            "127.0.0.1:http",
            "::1",
            "[::1",
            "[::1]x",
            "[evil.example]",
            "[]",
            "a/b",
            "é.example",
            "a%2eb",
            "a\u{0}",
        ] {
            let status = check_host(host, &names()).map_err(|refused| refused.0);
            assert_eq!(status, Err(400), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let check = |site: Option<&str>, origin: Option<&str>, host| {
            let checked = check_site(site.into_iter(), origin.into_iter(), host, &names());
            checked.map_err(|refused| refused.0)
        };
        let here = Some("127.0.0.1:6060");
        assert_eq!(check(None, None, None), Ok(()));
        for site in ["none", "same-origin", "same-site", "anything"] {
            assert_eq!(check(Some(site), None, here), Ok(()), "{site}");
        }
        assert_eq!(check(Some("cross-site"), None, here), Err(403));
        assert_eq!(check(Some("Cross-Site"), None, None), Err(403));
        for (origin, host) in [
            ("http://127.0.0.1:6060", "127.0.0.1:6060"),
            ("http://localhost:3000", "127.0.0.1:6060"),
            ("https://[::1]", "localhost"),
            ("http://10.0.0.7", "10.0.0.7:6060"),
            ("https://debug.example.com", "10.0.0.7:6060"),
            ("http://app:8080", "app:6060"),
        ] {
            assert_eq!(check(None, Some(origin), Some(host)), Ok(()), "{origin}");
        }
        for (origin, host) in [
            ("null", "127.0.0.1:6060"),
            ("", "127.0.0.1:6060"),
            ("https://evil.example", "127.0.0.1:6060"),
            ("http://10.0.0.8", "10.0.0.7:6060"),
            ("http://10.0.0.8", "127.0.0.1:6060"),
            ("file://localhost", "localhost"),
            ("chrome-extension://abcdefgh", "localhost"),
            ("http://evil.example@127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(check(None, Some(origin), Some(host)), Err(403), "{origin}");
        }
        assert_eq!(check(None, Some("http://127.0.0.1"), None), Err(403));
    }

    #[test]
    fn a_configured_name_is_a_name_without_a_port() {
        for wrong in ["", "a b", "a:80", "http://a", "[::1]", "*", "a/b", "é"] {
            assert!(Names::default().add(wrong).is_err(), "{wrong}");
        }
        let mut names = Names::default();
        names.add_listening("0.0.0.0:6060");
        names.add_listening("[::]:6060");
        assert_eq!(names, Names::default());
        names.add_listening("Host.Example:6060");
        assert!(names.contains("host.example"));
    }

    #[test]
    fn a_host_in_a_url_has_no_port_and_no_other_characters() {
        for (authority, host) in [
            ("LocalHost:80", Some("localhost")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("[::1]:6060", Some("[::1]")),
            ("[fe80::1%x\r\ny]:6060", Some("[fe80::1]")),
            ("a\r\nb", None),
            ("a/b", None),
            ("", None),
        ] {
            assert_eq!(host_of(authority).as_deref(), host, "{authority:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_value_in_one_short_line() {
        let host = format!("a\u{202e}\n{}", "x".repeat(10_000));
        let (status, text) = check_host(&host, &Names::default()).unwrap_err();
        assert_eq!(status, 400);
        assert!(
            text.contains(r#""a\u{202e}\nxxx"#) && text.len() < 200,
            "{text}"
        );
    }
}
