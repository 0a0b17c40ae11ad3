//! The addresses of sockets, as the kernel lists them for the process's network namespace.

use std::collections::HashMap;
use std::fs;

use plimsoll_command::sockets::{Socket, canonical, each_in};

/// Addresses of sockets in words, by the number of the socket.
pub(crate) struct Sockets(HashMap<u64, String>);

impl Sockets {
    /// Reads the lists of a process. Those that cannot be read are left out.
    pub(crate) fn read(pid: i32) -> Self {
        let mut found = HashMap::new();
        for table in ["tcp", "tcp6", "udp", "udp6"] {
            let protocol = table.trim_end_matches('6');
            let _ = each_in(&pid, table, |socket| {
                found.insert(socket.inode, internet(protocol, &socket));
            });
        }
        // A name may have any bytes.
        let text = fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default();
        for (number, name) in String::from_utf8_lossy(&text).lines().filter_map(local) {
            found.entry(number).or_insert(name);
        }
        Self(found)
    }

    /// Returns the addresses of the socket to which a link such as `socket:[123]` leads.
    pub(crate) fn addresses(&self, link: &str) -> Option<&str> {
        let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
        self.0.get(&number.parse().ok()?).map(String::as_str)
    }
}

fn internet(protocol: &str, socket: &Socket) -> String {
    let [local, remote] = [socket.local, socket.remote].map(canonical);
    match (protocol, remote.port()) {
        ("tcp", _) if socket.is_listening => format!("{protocol} {local}, listening"),
        (_, 0) => format!("{protocol} {local}"),
        _ => format!("{protocol} {local} to {remote}"),
    }
}

/// Parses a line of the form `ADDRESS: references protocol flags kind state NUMBER PATH`, of which most have no path. A path may
/// contain line feeds: a program can make the kernel write lines of this form.
fn local(line: &str) -> Option<(u64, String)> {
    let (address, mut rest) = line.split_once(": ")?;
    u64::from_str_radix(address, 16).ok()?;
    for _ in 0..5 {
        rest = rest.split_once(' ')?.1.trim_start();
    }
    let (number, path) = rest.split_once(' ')?;
    Some((number.parse().ok()?, format!("unix {path}")))
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

    #[test]
    fn lists_are_parsed_as_the_kernel_writes_them() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 10186 /run/a socket";
        assert_eq!(local(line), Some((10186, "unix /run/a socket".to_owned())));
        let padded = "00000000519ef968: 00000003 00000000 00000000 0001 03    58 @name";
        assert_eq!(local(padded), Some((58, "unix @name".to_owned())));
        for line in [
            "",
            "00000000519ef968: 00000003 00000000 00000000 0001 03  1580",
            "Num       RefCount Protocol Flags    Type St Inode Path",
            "x: 1 2 3 4 5 6 7",
            "1: 1 2 3",
        ] {
            assert_eq!(local(line), None, "{line}");
        }
        let socket = |local: &str, remote: &str, is_listening| Socket {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            is_listening,
            user: 0,
            inode: 1,
        };
        let tcp = internet("tcp", &socket("[::1]:8080", "[::]:0", true));
        assert_eq!(tcp, "tcp [::1]:8080, listening");
        let udp = internet("udp", &socket("0.0.0.0:53", "0.0.0.0:0", false));
        assert_eq!(udp, "udp 0.0.0.0:53");
        let connected = internet("udp", &socket("10.0.0.1:53", "10.0.0.2:9", false));
        assert_eq!(connected, "udp 10.0.0.1:53 to 10.0.0.2:9");
        let mapped = internet(
            "tcp",
            &socket("[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.2]:9", false),
        );
        assert_eq!(mapped, "tcp 10.0.0.1:80 to 10.0.0.2:9");
    }
}
