//! TCP sockets and their owners, as the kernel lists them in `/proc`.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// A socket in a table of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its own address.
    pub local: SocketAddr,
    /// The address of the other side; with port 0 if there is none.
    pub remote: SocketAddr,
    /// Whether a TCP socket waits for connections.
    pub is_listening: bool,
    /// The user that created it; 0 if no process has it any more.
    pub user: u32,
    /// 0 if no process has it any more.
    pub inode: u64,
}

/// Returns the addresses on which a process listens. They belong to the network namespace of the
/// process: see [`shares_network`].
///
/// # Errors
/// The system's error: the process does not exist, or its descriptors cannot be read.
pub fn listening(process: impl Display) -> io::Result<Vec<SocketAddr>> {
    let own = inodes(&process)?;
    let mut found = Vec::new();
    each_socket(&process, |socket| {
        if socket.is_listening && own.contains(&socket.inode) {
            found.push(socket.local);
        }
    })?;
    Ok(found)
}

/// Returns whether a process and this one have the same network, so that an address of the former
/// leads to it.
///
/// # Errors
/// The system's error: the process does not exist, or its namespaces cannot be read.
pub fn shares_network(process: impl Display) -> io::Result<bool> {
    let namespace = |process: &dyn Display| fs::read_link(format!("/proc/{process}/ns/net"));
    Ok(namespace(&process)? == namespace(&"self")?)
}

/// Returns an address at which a listening socket can be reached. Replaces an unspecified host by
/// the loopback address.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(host) if host.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        host => host,
    };
    SocketAddr::new(host, address.port())
}

/// Returns the user of the client of a connection on this machine; `None` if the kernel lists no such
/// client, or it has closed the connection.
pub fn user_of_client(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let mut user = None;
    let _ = each_socket(&"self", |socket| {
        let ends = [socket.local, socket.remote].map(canonical);
        if ends == [client, server].map(canonical) && socket.inode != 0 {
            user = Some(socket.user);
        }
    });
    user
}

/// Replaces an IPv6 address that stands for an IPv4 address.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Returns the inodes of a process's sockets.
fn inodes(process: &dyn Display) -> io::Result<HashSet<u64>> {
    let mut sockets = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
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

/// Calls `visit` with each TCP socket in the network namespace of a process.
fn each_socket(process: &dyn Display, mut visit: impl FnMut(Socket)) -> io::Result<()> {
    each_in(process, "tcp", &mut visit)?;
    match each_in(process, "tcp6", &mut visit) {
        // The table does not exist if the kernel lacks IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        read => read,
    }
}

/// Calls `visit` with each socket in a table of the network namespace of a process: `tcp`, `tcp6`, `udp` or `udp6`.
///
/// # Errors
/// The system's error: the process or the table does not exist, or cannot be read.
pub fn each_in(
    process: &dyn Display,
    table: &str,
    mut visit: impl FnMut(Socket),
) -> io::Result<()> {
    let path = format!("/proc/{process}/net/{table}");
    let file = File::open(Path::new(&path))?;
    for line in BufReader::new(file).lines() {
        if let Some(socket) = parse(&line?) {
            visit(socket);
        }
    }
    Ok(())
}

/// Parses a line of a table of the kernel.
fn parse(line: &str) -> Option<Socket> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = address(fields.next()?)?;
    let remote = address(fields.next()?)?;
    let is_listening = fields.next()? == LISTEN;
    let user = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Socket {
        local,
        remote,
        is_listening,
        user,
        inode,
    })
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_sockets_of_this_process_are_found_with_their_user() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("bound");
        let own = listening(std::process::id()).expect("its own are seen");
        assert!(own.contains(&server), "{own:?}");
        let client = TcpStream::connect(server).expect("it listens");
        let from = client.local_addr().expect("connected");
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(user_of_client(from, server), Some(user));
        assert_eq!(user_of_client(server, server), None);
        // A closed socket has the user 0 in the table.
        drop(client);
        assert_eq!(user_of_client(from, server), None);
        drop(listener);
        let own = listening(std::process::id()).expect("its own are seen");
        assert!(!own.contains(&server), "{own:?}");
    }

    #[test]
    fn a_client_by_ipv6_is_found_by_its_ipv4_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("bound");
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{}", server.port())
            .parse()
            .expect("an address");
        let Ok(_client) = TcpStream::connect(mapped) else {
            plimsoll_testkit::skip!("no IPv6");
            return;
        };
        let (_, from) = listener.accept().expect("a client");
        assert!(user_of_client(from, server).is_some());
    }

    #[test]
    fn this_process_shares_its_network_and_no_process_has_none() {
        assert!(shares_network("self").expect("it exists"));
        assert!(shares_network("99999999999999999999999").is_err());
        assert!(listening("99999999999999999999999").is_err());
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
    }

    #[test]
    fn only_complete_lines_are_sockets() {
        let line = |state: &str| {
            format!(
                "   0: 0100007F:17AC 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0"
            )
        };
        let found = parse(&line("0A")).expect("a socket");
        assert_eq!(
            (found.is_listening, found.user, found.inode),
            (true, 1000, 12345)
        );
        assert!(!parse(&line("01")).expect("a socket").is_listening);
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(parse(header), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn an_unspecified_host_is_reached_by_the_loopback_address() {
        for (address, requested) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(reachable(address).to_string(), requested);
        }
    }
}
