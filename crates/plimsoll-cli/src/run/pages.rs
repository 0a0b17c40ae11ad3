//! The list of processes that serve pages, for `--http` with `--children`. This process listens at
//! the address. Each profiled process listens at its own port, and notes it in the directory for
//! reports.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::reports::open_report;
use super::say;
use crate::plain_text::plain;

/// The interval between searches for new processes and between checks for requests.
const INTERVAL: Duration = Duration::from_millis(100);

/// The time that a client may take to send its request, and the time to read the response.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum length of a request in bytes.
const MAX_REQUEST: usize = 8 << 10;

/// The server of the list, before the program runs.
pub struct Pages {
    listener: TcpListener,
    /// The address at which processes listen: a host, and port 0.
    pub for_processes: String,
}

impl Pages {
    /// Listens at an address, `host:port`, or at a port of 127.0.0.1.
    pub fn bind(address: &str) -> io::Result<Self> {
        let host = address
            .rsplit_once(':')
            .map_or("127.0.0.1", |(host, _)| host);
        let listener = match address.parse::<u16>() {
            Ok(port) => TcpListener::bind((host, port)),
            Err(_) => TcpListener::bind(address),
        }?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            for_processes: format!("{host}:0"),
        })
    }

    /// Serves the list in a thread until this process ends. Redirects requests for pages to
    /// `process`. With `prints`, prints each address when it is known.
    pub fn serve(self, reports: &Path, process: u32, prints: bool) -> io::Result<()> {
        let address = self.listener.local_addr()?;
        if prints {
            say(&format!("plimsoll: http://{address}/ lists the processes"));
        }
        let list = List {
            reports: reports.to_owned(),
            process,
        };
        let serve = move || {
            let mut printed = HashMap::new();
            loop {
                while let Ok((stream, _)) = self.listener.accept() {
                    // A client whose connection fails gets no response.
                    let _ = list.answer(stream);
                }
                if prints {
                    list.print_new(&mut printed);
                }
                std::thread::sleep(INTERVAL);
            }
        };
        std::thread::Builder::new().spawn(serve).map(drop)
    }
}

/// The source of the list: the directory for reports and the id of the program.
struct List {
    reports: PathBuf,
    process: u32,
}

/// A process that serves pages.
struct Entry {
    process: u32,
    name: String,
    address: SocketAddr,
}

impl List {
    /// Returns the processes that run and serve pages, by process id.
    fn entries(&self) -> Vec<Entry> {
        let files = std::fs::read_dir(&self.reports);
        let mut all: Vec<Entry> = files
            .into_iter()
            .flatten()
            .filter_map(|file| entry(&file.ok()?.path()))
            .collect();
        all.sort_by_key(|entry| entry.process);
        all
    }

    fn print_new(&self, printed: &mut HashMap<u32, SocketAddr>) {
        for entry in self.entries() {
            let before = printed.insert(entry.process, entry.address);
            if before != Some(entry.address) {
                let Entry {
                    process,
                    name,
                    address,
                } = entry;
                say(&format!(
                    "plimsoll: {name} (process {process}) serves http://{address}/debug/pprof/"
                ));
            }
        }
    }

    /// Answers one request.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = head(&mut stream)?;
        let mut lines = head.lines();
        let target = lines.next().and_then(|line| line.split(' ').nth(1));
        let target = target.filter(|target| target.starts_with('/'));
        let host = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("host"))
            .map(|(_, host)| host.trim());
        let entries = self.entries();
        let answer = match target {
            None => answer("400 Bad Request", "", "not a request\n"),
            Some("/") => {
                let mut list = String::new();
                for entry in &entries {
                    let to = reachable(entry.address, host);
                    // Writing to a string does not fail.
                    let _ = writeln!(
                        list,
                        "{:>8} {:16} http://{to}/debug/pprof/",
                        entry.process, entry.name
                    );
                }
                answer("200 OK", "", &list)
            }
            Some(target) => match entries.iter().find(|entry| entry.process == self.process) {
                Some(entry) => {
                    let to = reachable(entry.address, host);
                    let location = format!("Location: http://{to}{target}\r\n");
                    answer("307 Temporary Redirect", &location, "")
                }
                None => answer("404 Not Found", "", "the program does not serve pages\n"),
            },
        };
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(answer.as_bytes())
    }
}

/// Returns the process whose address and name are in the file, if it runs.
fn entry(file: &Path) -> Option<Entry> {
    /// More than an address and a name have.
    const MAX_NOTE: u64 = 1000;
    let process: u32 = file.file_stem()?.to_str()?.parse().ok()?;
    if file.extension()? != "http" {
        return None;
    }
    let mut noted = String::new();
    let file = open_report(file).ok()?;
    file.take(MAX_NOTE).read_to_string(&mut noted).ok()?;
    let (address, name) = noted.split_once('\n')?;
    let runs = Path::new("/proc").join(process.to_string()).exists();
    runs.then_some(Entry {
        process,
        name: plain(name.trim_end()).into_owned(),
        address: address.parse().ok()?,
    })
}

/// Returns the address for a client. If the process listens at all addresses, this is the host by
/// which the client reached this server.
fn reachable(address: SocketAddr, host: Option<&str>) -> String {
    let is_plain = |host: &&str| {
        let mut bytes = host.bytes();
        bytes.all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    let Some(host) = host.filter(is_plain) else {
        let local: IpAddr = [127, 0, 0, 1].into();
        return SocketAddr::new(local, address.port()).to_string();
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    format!("{name}:{}", address.port())
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Type: text/plain; charset=utf-8\r\n\
         X-Content-Type-Options: nosniff\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Reads the head of a request, up to the empty line.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let deadline = Instant::now() + TIMEOUT;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    stream.set_nonblocking(false)?;
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MAX_REQUEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_the_client_can_reach() {
        let own: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        assert_eq!(reachable(own, Some("server:6060")), "127.0.0.1:40000");
        let any: SocketAddr = "0.0.0.0:40000".parse().unwrap();
        assert_eq!(reachable(any, Some("server:6060")), "server:40000");
        assert_eq!(reachable(any, Some("server")), "server:40000");
        assert_eq!(reachable(any, Some("[::1]:6060")), "[::1]:40000");
        assert_eq!(reachable(any, Some("a/b")), "127.0.0.1:40000");
        assert_eq!(reachable(any, None), "127.0.0.1:40000");
    }
}
