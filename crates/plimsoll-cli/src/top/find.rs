//! Finds the watched program by the URL of its pages, or by its process id.
//!
//! A process serves its pages on one of the TCP sockets on which it listens. `/proc/PID/fd` lists
//! its sockets; `/proc/PID/net/tcp` and `tcp6` list the addresses of listening sockets. Each
//! address is requested for the page of figures until one returns Plimsoll's.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::clean::clean;
use super::model::Trouble;
use super::source::Pages;
use crate::failure::Failure;

/// The timeout for identifying a socket's server, which may be any program.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Advice for programs that serve no pages.
const START: &str = "start it with PLIMSOLL=http=127.0.0.1:6060 in its environment";

/// A watched program.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) pages: Pages,
    /// Its name on the screen and in errors.
    pub(super) name: String,
}

impl Target {
    /// Finds the program that the argument names.
    pub(super) fn find(program: &str) -> Result<Self, Failure> {
        if !program.is_empty() && program.bytes().all(|byte| byte.is_ascii_digit()) {
            return of_process(program);
        }
        let pages = Pages::of_url(program).ok_or_else(|| {
            let cause = "neither a URL, such as http://127.0.0.1:6060, nor a process id";
            Failure::new(named(program), cause).with_code(2)
        })?;
        Ok(Self {
            name: clean(pages.base()),
            pages,
        })
    }

    /// Describes in one line why the program cannot be watched.
    pub(super) fn failure(&self, trouble: &Trouble) -> Failure {
        let advice = if trouble.gone {
            format!("; {START}")
        } else {
            String::new()
        };
        Failure::new(&self.name, format!("{}{advice}", trouble.why))
    }
}

fn named(program: &str) -> String {
    match program {
        "" => "''".into(),
        program => clean(program),
    }
}

fn of_process(pid: &str) -> Result<Target, Failure> {
    let fail = |cause: String| Failure::new(format!("process {pid}"), cause);
    // A number that is too large does not name a process either.
    let sockets = sockets(pid).map_err(|error| {
        let is_port = pid.parse::<u16>().is_ok() && error.kind() == io::ErrorKind::NotFound;
        let advice = if is_port {
            format!("; a port is :{pid}")
        } else {
            String::new()
        };
        fail(format!("{}{advice}", reason(&error)))
    })?;
    let read = |table: &str| fs::read_to_string(format!("/proc/{pid}/net/{table}"));
    let v4 = read("tcp").map_err(|error| fail(reason(&error)))?;
    // The table does not exist if the kernel lacks IPv6.
    let v6 = read("tcp6").unwrap_or_default();
    let listening: Vec<SocketAddr> = v4
        .lines()
        .chain(v6.lines())
        .filter_map(listening)
        .filter(|(_, inode)| sockets.contains(inode))
        .map(|(address, _)| reachable(address))
        .collect();
    if listening.is_empty() {
        return Err(fail(format!("the process listens on no TCP port; {START}")));
    }
    for &address in &listening {
        let pages = Pages::of_address(address);
        if pages.figures(TIMEOUT).is_ok() {
            return Ok(Target {
                name: format!("process {pid}, {}", pages.base()),
                pages,
            });
        }
    }
    let mut ports: Vec<String> = listening.iter().map(|at| at.port().to_string()).collect();
    ports.dedup();
    ports.truncate(10);
    let ports = ports.join(", ");
    Err(fail(format!(
        "Plimsoll responds on none of its ports ({ports}); {START}, or give the URL of its pages"
    )))
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such process".into(),
        io::ErrorKind::PermissionDenied => {
            "it belongs to another user; watch it as that user or as root, or give the URL of its \
             pages"
                .into()
        }
        _ => error.to_string(),
    }
}

/// Returns the inodes of a process's sockets.
fn sockets(pid: &str) -> io::Result<HashSet<u64>> {
    let mut sockets = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that was closed in the meantime does not matter.
        let Ok(leads_to) = entry.and_then(|entry| fs::read_link(entry.path())) else {
            continue;
        };
        let inode = leads_to.to_str().and_then(|name| {
            let number = name.strip_prefix("socket:[")?.strip_suffix(']')?;
            number.parse::<u64>().ok()
        });
        sockets.extend(inode);
    }
    Ok(sockets)
}

/// Returns the address and the inode of a listening socket, from its line in a table of the kernel.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let address = address(fields.next()?)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?.parse().ok()?;
    (state == LISTEN).then_some((address, inode))
}

/// Parses an address such as `0100007F:17AC`: 32-bit words in the machine's byte order, each
/// printed as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !host.is_ascii() || host.len() % 8 != 0 {
        return None;
    }
    let mut bytes = Vec::new();
    for word in host.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let host = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(host, port))
}

/// Returns an address at which a listening socket can be reached. Replaces an unspecified host by
/// the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    };
    SocketAddr::new(host, address.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn failure(program: &str) -> String {
        Target::find(program)
            .expect_err("there is no such program")
            .to_string()
    }

    #[test]
    fn an_invalid_target_is_reported_in_one_line() {
        for (program, why) in [
            ("", "neither a URL"),
            ("search", "neither a URL"),
            ("-1", "neither a URL"),
            ("a\u{1b}[31m\nb", "neither a URL"),
            ("0", "no such process"),
            ("99999999999999999999999", "no such process"),
        ] {
            let message = failure(program);
            assert!(message.contains(why), "{program:?}: {message}");
            assert!(!message.contains(char::is_control), "{message:?}");
        }
    }

    #[test]
    fn sockets_that_are_not_plimsolls_are_passed_over() {
        // Dropping the listener closes the port.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let own = sockets(&std::process::id().to_string()).expect("its own are seen");
        let table = fs::read_to_string("/proc/self/net/tcp").expect("one exists");
        let mut found = table.lines().filter_map(super::listening);
        let found = found.find(|(at, _)| *at == address).expect("it listens");
        assert!(own.contains(&found.1));
        let hang_up = std::thread::spawn(move || {
            for connection in listener.incoming() {
                drop(connection);
            }
        });
        let message = failure(&std::process::id().to_string());
        assert!(message.contains("on none of its ports"), "{message}");
        assert!(message.contains(&address.port().to_string()), "{message}");
        drop(hang_up);
    }

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        if cfg!(target_endian = "little") {
            for (text, expected) in [
                ("0100007F:17AC", "127.0.0.1:6060"),
                ("00000000:0050", "0.0.0.0:80"),
                ("00000000000000000000000001000000:17AC", "[::1]:6060"),
            ] {
                assert_eq!(
                    address(text).map(|at| at.to_string()).as_deref(),
                    Some(expected)
                );
            }
        }
        for text in [
            "",
            ":",
            "x:1",
            "01:1",
            "0100007F",
            "0100007F:fffff",
            "éééé:1",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
        for (address, asked) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(reachable(address).to_string(), asked);
        }
    }

    #[test]
    fn only_sockets_that_listen_count() {
        let line = |state: &str| {
            format!(
                "   0: 0100007F:17AC 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0"
            )
        };
        assert_eq!(listening(&line("0A")).map(|(_, inode)| inode), Some(12345));
        assert_eq!(listening(&line("01")), None);
        assert_eq!(
            listening("  sl  local_address rem_address   st tx_queue"),
            None
        );
    }
}
