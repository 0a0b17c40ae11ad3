//! A minimal HTTP client for the pages: it sends bytes and reads the response to the end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The time limit of all operations here, which detects hangs.
pub const HANG: Duration = Duration::from_secs(60);

/// Opens a connection whose reads and writes fail after [`HANG`].
pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.set_write_timeout(Some(HANG)).unwrap();
    stream
}

/// A parsed response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, with values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header; `None` if it is absent. Panics if it occurs twice.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(key, _)| *key == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} twice: {self:?}");
        value
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// Reads until the server closes the connection; `None` if it sends no byte.
pub fn read_answer(mut stream: &TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            // A thread profile interrupts the read, which is not restarted if it has a timeout.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The server closed the connection before it had read the whole request.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
        }
    }
    if bytes.is_empty() {
        return None;
    }
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head that ends");
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).expect("a head is text");
    let mut lines = head.trim_end().split("\r\n");
    let line = lines.next().unwrap();
    let mut words = line.splitn(3, ' ');
    assert_eq!(words.next(), Some("HTTP/1.1"), "{line}");
    let status = words.next().and_then(|status| status.parse().ok());
    assert!(words.next().is_some_and(|reason| !reason.is_empty()));
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").expect("a header");
        (name.to_ascii_lowercase(), value.into())
    });
    Some(Answer {
        status: status.expect("a status"),
        headers: headers.collect(),
        body,
    })
}

/// Sends bytes, as far as the server accepts them, and reads the response.
pub fn exchange(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = connect(address);
    let _ = stream.write_all(request);
    read_answer(&stream)
}

pub fn request(address: SocketAddr, method: &str, target: &str) -> Answer {
    let request =
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|| panic!("no answer to {target}"))
}

pub fn get(address: SocketAddr, target: &str) -> Answer {
    request(address, "GET", target)
}

/// Waits for a state, and panics if it does not occur within [`HANG`].
pub fn wait_for(what: &str, mut state: impl FnMut() -> bool) {
    let start = Instant::now();
    while !state() {
        assert!(start.elapsed() < HANG, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the names of the threads of this process.
pub fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().into())
        .collect()
}
