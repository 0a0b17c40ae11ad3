//! A client for the pages of running programs: plain HTTP, answers of a bounded size.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;

use crate::Failure;

/// The longest answer that is taken, in bytes, as it comes and uncompressed.
const LONGEST: u64 = 1 << 30;

/// The longest line of a head, and how many there may be.
const LONGEST_LINE: u64 = 16 << 10;
const MOST_LINES: usize = 200;

/// How often what was moved is asked for again.
const MOST_MOVES: usize = 5;

/// The page with the heap profile.
const HEAP: &str = "/debug/pprof/heap";

/// The URL of a profile if `name` is one, or a bare `host:port` that is no file. Without a path, it
/// is that of the heap profile.
pub fn profile_url(name: &str) -> Option<String> {
    let url = base_url(name)?;
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = match rest.find(['/', '?']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    match path {
        "" | "/" => Some(format!("{scheme}://{authority}{HEAP}")),
        _ => Some(url),
    }
}

/// The URL that `name` is: with a scheme, or a bare `host:port` that is no file, perhaps with a
/// path.
pub fn base_url(name: &str) -> Option<String> {
    if name.starts_with("http://") || name.starts_with("https://") {
        return Some(name.to_owned());
    }
    let (authority, _) = name.split_once('/').unwrap_or((name, ""));
    let (host, port) = authority.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.parse::<u16>().is_ok();
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.ends_with(']'),
        None => host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    if !is_port || !is_host || std::path::Path::new(name).exists() {
        return None;
    }
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let rest = &name[authority.len()..];
    Some(format!("http://{host}:{port}{rest}"))
}

/// What is at the URL, uncompressed if it was compressed for the way.
///
/// # Errors
/// If nobody answers within `timeout` altogether, or with anything but a page.
pub fn get(url: &str, timeout: Duration) -> Result<Vec<u8>, Failure> {
    get_telling(url, timeout, |_| {})
}

/// The same; `tell` is told several times a second how many bytes have come.
///
/// # Errors
/// Those of [`get`].
pub fn get_telling(
    url: &str,
    timeout: Duration,
    mut tell: impl FnMut(u64),
) -> Result<Vec<u8>, Failure> {
    let until = Instant::now() + timeout;
    let mut asked = url.to_owned();
    for _ in 0..=MOST_MOVES {
        let fail = |cause: String| Failure::new(&asked, cause);
        let address = Address::new(&asked).map_err(&fail)?;
        let answer = ask(&address, until, &mut tell);
        match answer.map_err(|error| fail(plainly(&error, &address)))? {
            Answer::Page(page) => return Ok(page),
            Answer::Moved(to) => {
                asked = match to.strip_prefix('/') {
                    Some(_) => format!("http://{}{to}", address.authority),
                    None => to,
                }
            }
            Answer::Refused(why) => return Err(fail(why)),
        }
    }
    Err(Failure::new(url, "it was moved too often"))
}

/// Where to ask for what.
struct Address {
    /// As in the URL.
    authority: String,
    host: String,
    port: u16,
    path: String,
}

impl Address {
    fn new(url: &str) -> Result<Self, String> {
        if url.starts_with("https://") {
            return Err(
                "https is not spoken here; fetch it with another program, as in \
                        `curl -o profile.pb.gz URL`, and give the file"
                    .to_owned(),
            );
        }
        let rest = url.strip_prefix("http://").ok_or("it is no URL of http")?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err("it has blanks or control characters".to_owned());
        }
        if authority.contains('@') {
            return Err("names and passwords in URLs are not understood".to_owned());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (
                host,
                port.parse().map_err(|_| format!("{port} is no port"))?,
            ),
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err("it names no host".to_owned());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            authority: authority.to_owned(),
            host: host.to_owned(),
            port,
            path: format!("{slash}{path}"),
        })
    }
}

enum Answer {
    Page(Vec<u8>),
    Moved(String),
    /// Another status, and what the page says about it.
    Refused(String),
}

/// Errors in words for whoever gave the URL.
fn plainly(error: &io::Error, address: &Address) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!(
                "nobody listens on port {} of {}",
                address.port, address.host
            )
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "there is no answer".to_owned(),
        io::ErrorKind::UnexpectedEof => "the answer is cut off".to_owned(),
        _ => error.to_string(),
    }
}

/// A connection all of whose reading and writing ends at one time.
struct Timed<'a> {
    stream: TcpStream,
    begun: Instant,
    until: Instant,
    read: u64,
    tell: &'a mut dyn FnMut(u64),
}

impl Timed<'_> {
    /// The time that is left.
    ///
    /// # Errors
    /// None is. If some of the answer has come, the error states how much.
    fn left(&self) -> io::Result<Duration> {
        left(self.until).map_err(|error| match self.read {
            0 => error,
            read => {
                let seconds = self.begun.elapsed().as_secs_f64();
                io::Error::other(format!(
                    "the answer is not complete after {seconds:.0} s: {read} bytes of it came"
                ))
            }
        })
    }
}

/// How long nobody is told how far it is.
const TELL_EVERY: Duration = Duration::from_millis(200);

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let wait = self.left()?.min(TELL_EVERY);
            self.stream.set_read_timeout(Some(wait))?;
            match self.stream.read(to) {
                Ok(read) => {
                    self.read += read as u64;
                    (self.tell)(self.read);
                    return Ok(read);
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    (self.tell)(self.read);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn connect(address: &Address, until: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::other(format!("{} has no address", address.host));
    for to in (address.host.as_str(), address.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&to, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(address: &Address, until: Instant, tell: &mut dyn FnMut(u64)) -> io::Result<Answer> {
    let begun = Instant::now();
    let mut stream = connect(address, until)?;
    stream.set_write_timeout(Some(left(until)?))?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: plimsoll/{}\r\nAccept-Encoding: gzip\r\n\
         Connection: close\r\n\r\n",
        address.path,
        address.authority,
        env!("CARGO_PKG_VERSION"),
    );
    stream.write_all(request.as_bytes())?;
    let connection = Timed {
        stream,
        begun,
        until,
        read: 0,
        tell,
    };
    let mut from = BufReader::with_capacity(64 << 10, connection);
    let head = Head::read(&mut from)?;
    if (300..400).contains(&head.status)
        && let Some(to) = head.location
    {
        return Ok(Answer::Moved(to));
    }
    let body = body(&mut from, &head)?;
    let body = match head.gzip {
        true => bounded(MultiGzDecoder::new(&body[..]))?,
        false => body,
    };
    if head.status == 200 {
        return Ok(Answer::Page(body));
    }
    let said = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let said = said.lines().next().unwrap_or_default().trim();
    let said: String = said.chars().filter(|letter| !letter.is_control()).collect();
    Ok(Answer::Refused(
        match said.is_empty() || said.starts_with('<') {
            true => format!("the answer is status {}", head.status),
            false => format!("the answer is status {}: {said}", head.status),
        },
    ))
}

/// What is used of an answer's head.
#[derive(Default)]
struct Head {
    status: u16,
    length: Option<u64>,
    chunked: bool,
    gzip: bool,
    location: Option<String>,
}

impl Head {
    fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut head = Self::default();
        // Answers of 100 and the like come before the one that counts.
        while head.status < 200 {
            let status = line(from)?;
            let mut parts = status.split_ascii_whitespace();
            let version = parts.next().unwrap_or_default();
            head.status = match parts.next().and_then(|status| status.parse().ok()) {
                Some(status) if version.starts_with("HTTP/1.") && status >= 100 => status,
                _ => return Err(io::Error::other("the answer is not HTTP")),
            };
            let mut lines = 0;
            loop {
                let line = line(from)?;
                if line.is_empty() {
                    break;
                }
                lines += 1;
                if lines > MOST_LINES {
                    return Err(io::Error::other("the answer's head is too long"));
                }
                let (name, value) = line.split_once(':').unwrap_or((&line, ""));
                head.field(&name.to_ascii_lowercase(), value.trim())?;
            }
        }
        Ok(head)
    }

    fn field(&mut self, name: &str, value: &str) -> io::Result<()> {
        match name {
            "content-length" => {
                let length = value.parse();
                self.length =
                    Some(length.map_err(|_| io::Error::other("the answer's length is no number"))?);
            }
            "transfer-encoding" => self.chunked = value.eq_ignore_ascii_case("chunked"),
            "content-encoding" => self.gzip = value.eq_ignore_ascii_case("gzip"),
            "location" => self.location = Some(value.to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// The next line, without its end.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(match line.len() as u64 + 1 >= LONGEST_LINE {
            true => io::Error::other("the answer's head is too long"),
            false => io::ErrorKind::UnexpectedEof.into(),
        });
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn too_long() -> io::Error {
    io::Error::other(format!("the answer is longer than {} MiB", LONGEST >> 20))
}

/// All that comes from there.
fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    from.take(LONGEST + 1).read_to_end(&mut all)?;
    match all.len() as u64 > LONGEST {
        true => Err(too_long()),
        false => Ok(all),
    }
}

fn body(from: &mut impl BufRead, head: &Head) -> io::Result<Vec<u8>> {
    if head.chunked {
        return chunks(from);
    }
    let Some(length) = head.length else {
        return bounded(from);
    };
    if length > LONGEST {
        return Err(too_long());
    }
    let body = bounded(from.take(length))?;
    match body.len() as u64 == length {
        true => Ok(body),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn chunks(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(from)?;
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(size, 16)
            .map_err(|_| io::Error::other("the answer is in broken chunks"))?;
        if size == 0 {
            return Ok(body);
        }
        if body.len() as u64 + size.min(LONGEST) > LONGEST || size > LONGEST {
            return Err(too_long());
        }
        let before = body.len();
        from.take(size).read_to_end(&mut body)?;
        if (body.len() - before) as u64 != size || !line(from)?.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
