//! A server that records requests and answers as the test chooses.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use plimsoll_testkit::client::HANG;

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A request as it was received.
#[derive(Debug)]
pub struct Request {
    /// With the empty line at its end.
    pub head: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> &str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(key, _)| *key == name);
        found
            .unwrap_or_else(|| panic!("{name} is absent: {}", self.head))
            .1
    }
}

/// The server. Its thread ends with the process.
pub struct Server {
    address: SocketAddr,
    requests: Receiver<Request>,
}

impl Server {
    /// Answers the request of each number, from 0, by a function that gets the open connection.
    pub fn new(answer: impl Fn(usize, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, requests) = channel();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(HANG)).unwrap();
                let Some(request) = read(&mut stream) else {
                    continue;
                };
                // A failure means that the test has ended.
                let _ = send.send(request);
                answer(number, &mut stream);
            }
        });
        Self { address, requests }
    }

    /// Answers all requests with the same bytes.
    pub fn with(answer: &'static [u8]) -> Self {
        Self::new(move |_, stream| {
            // The client may end the connection first.
            let _ = stream.write_all(answer);
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request.
    pub fn next(&self) -> Request {
        self.requests.recv_timeout(HANG).expect("a request")
    }

    /// Returns the next request if it has come.
    pub fn taken(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    /// Asserts that no other request has come.
    pub fn is_done(&self) {
        if let Some(request) = self.taken() {
            panic!("{}", request.head);
        }
    }
}

/// Reads a request; `None` if the client ends the connection before.
fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end + 4].to_vec()).expect("ASCII");
            let body = bytes[end + 4..].to_vec();
            let mut request = Request { head, body };
            let length = request.header("Content-Length").parse().unwrap();
            if request.body.len() >= length {
                assert_eq!(request.body.len(), length);
                request.head.truncate(end + 4);
                return Some(request);
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) => return None,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}
