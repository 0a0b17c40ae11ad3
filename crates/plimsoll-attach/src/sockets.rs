//! The addresses of sockets, as the kernel lists them for the process's network namespace.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Addresses of sockets in words, by the number of the socket.
#[derive(Default)]
pub(crate) struct Sockets(HashMap<u64, String>);

impl Sockets {
    /// Reads the lists of a process. Those that cannot be read are left out.
    pub(crate) fn read(pid: i32) -> Self {
        let mut found = Self::default();
        let read = |list: &str| fs::read_to_string(format!("/proc/{pid}/net/{list}"));
        for protocol in ["tcp", "tcp6", "udp", "udp6"] {
            let text = read(protocol).unwrap_or_default();
            let name = protocol.trim_end_matches('6');
            let sockets = text.lines().filter_map(|line| internet(name, line));
            found.0.extend(sockets);
        }
        let text = read("unix").unwrap_or_default();
        found.0.extend(text.lines().filter_map(local));
        found
    }

    /// Returns the addresses of the socket to which a link such as `socket:[123]` leads.
    pub(crate) fn addresses(&self, link: &str) -> Option<&str> {
        let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
        self.0.get(&number.parse().ok()?).map(String::as_str)
    }
}

/// Parses a line of the form `0: LOCAL REMOTE STATE queues timer retransmits user timeout NUMBER ...`.
fn internet(protocol: &str, line: &str) -> Option<(u64, String)> {
    const LISTENS: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let (own, other) = (address(words.next()?)?, address(words.next()?)?);
    let state = words.next()?;
    let number = words.nth(5)?.parse().ok()?;
    let text = match (protocol, state) {
        ("tcp", LISTENS) => format!("{protocol} {own}, listening"),
        _ if other.port() == 0 => format!("{protocol} {own}"),
        _ => format!("{protocol} {own} to {other}"),
    };
    Some((number, text))
}

/// Parses an address such as `0100007F:1F90`: words of the address in the processor's byte order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Parses a line of the form `address: references protocol flags kind state NUMBER PATH`, of which most have no path.
fn local(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace().skip(6);
    let number = words.next()?.parse().ok()?;
    let path = words.next()?;
    Some((number, format!("unix {path}")))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn sockets_of_this_process_have_their_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let sockets = Sockets::read(std::process::id() as i32);
        let addresses = |descriptor: i32| {
            let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
            sockets.addresses(link.to_str().unwrap())
        };
        let expected = format!("tcp {address}, listening");
        assert_eq!(addresses(listener.as_raw_fd()), Some(&*expected));
        let expected = format!("tcp {} to {address}", client.local_addr().unwrap());
        assert_eq!(addresses(client.as_raw_fd()), Some(&*expected));
        assert_eq!(sockets.addresses("pipe:[1]"), None);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn lists_are_parsed_as_the_kernel_writes_them() {
        let line = "   1: 0100007F:0277 0100007F:8E1C 01 00000000:00000000 00:00000000 00000000  1000        0 25190 2 x 20 0 0 10 -1";
        let expected = (25190, "tcp 127.0.0.1:631 to 127.0.0.1:36380".to_owned());
        assert_eq!(internet("tcp", line), Some(expected));
        let line = "   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 x 100 0 0 10 0";
        let expected = (77, "tcp [::1]:8080, listening".to_owned());
        assert_eq!(internet("tcp", line), Some(expected));
        let line = "  12: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 5 2 x 0";
        assert_eq!(
            internet("udp", line),
            Some((5, "udp 0.0.0.0:53".to_owned()))
        );
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 1234 /run/a socket";
        assert_eq!(local(line), Some((1234, "unix /run/a".to_owned())));
        for line in [
            "",
            "  sl  local_address rem_address   st tx_queue",
            "1: 1 2 3",
            "Num RefCount Protocol Flags Type St Inode Path",
        ] {
            assert_eq!(internet("tcp", line), None, "{line}");
            assert_eq!(local(line), None, "{line}");
        }
    }
}
