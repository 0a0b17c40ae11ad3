//! `plimsoll view` serves files to browsers on this machine only.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::command::{Directory, failure_of, file_of_command};
use crate::proto::Writer;

/// A running server, which ends with the test.
struct Server {
    child: Child,
    /// Kept open: the command may write to it.
    _out: BufReader<ChildStdout>,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Server {
    fn new(files: &[&str]) -> Self {
        let mut child = Command::new(file_of_command())
            .args(["view", "--no-open"])
            .args(files)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.strip_prefix("http://").unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        Self {
            child,
            _out: out,
            address,
        }
    }

    /// Sends a request, and returns the status and the whole answer.
    fn request(&self, method: &str, path: &str, host: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
        (status, answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, answer) = self.request("GET", path, &self.address);
        (status, String::from_utf8_lossy(&answer).into_owned())
    }
}

fn profile(name: &str) -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&[name, "main"], &[600]);
    writer.finish()
}

#[test]
fn the_page_lists_the_files_in_their_order() {
    let directory = Directory::new("view-list");
    let single = directory.file("one.pb", &profile("one"));
    let inner = directory.path("profiles");
    std::fs::create_dir(&inner).unwrap();
    for name in ["b.pb.gz", "a.heap.pb", "notes.txt"] {
        std::fs::write(format!("{inner}/{name}"), profile(name)).unwrap();
    }
    let server = Server::new(&[&single, &inner]);
    let (status, page) = server.get("/");
    assert_eq!(status, 200);
    assert!(
        page.contains("Content-Security-Policy: default-src 'none'"),
        "{page}"
    );
    let places: Vec<usize> = ["one.pb\"", "profiles/a.heap.pb\"", "profiles/b.pb.gz\""]
        .iter()
        .map(|title| page.find(title).unwrap())
        .collect();
    assert!(places.is_sorted(), "{page}");
    assert!(!page.contains("notes.txt"));
    for path in ["/page.js", "/page.css", "/profiles/0", "/profiles/2"] {
        assert_eq!(server.get(path).0, 200, "{path}");
    }
}

#[test]
fn a_request_for_another_host_or_to_change_something_is_refused() {
    let directory = Directory::new("view-refused");
    let file = directory.file("one.pb", &profile("one"));
    let server = Server::new(&[&file]);
    let port = server.address.rsplit(':').next().unwrap();
    let own = [format!("localhost:{port}"), server.address.clone()];
    for host in &own {
        assert_eq!(server.request("GET", "/", host).0, 200, "{host}");
    }
    for host in [
        "evil.example",
        "127.0.0.1",
        "localhost",
        "",
        &format!("evil:{port}"),
    ] {
        let (status, answer) = server.request("GET", "/profiles/0", host);
        assert_eq!(status, 403, "{host}");
        assert!(!answer.windows(4).any(|part| part == b"main"));
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(
            server.request(method, "/", &server.address).0,
            405,
            "{method}"
        );
    }
    for path in [
        "/profiles/1",
        "/profiles/-1",
        "/profiles/",
        "/history/0",
        "/growth/0",
        "/../etc/passwd",
    ] {
        assert_eq!(server.get(path).0, 404, "{path}");
    }
    let (status, text) = server.get("/profiles/0?at=yesterday");
    assert_eq!(status, 400);
    assert!(text.contains("at=yesterday is not a number"), "{text}");
    let (status, text) = server.get("/profiles/0?at=1");
    assert_eq!(status, 404);
    assert!(
        text.contains("only a post-mortem file has a history"),
        "{text}"
    );
}

#[test]
fn clients_that_send_nothing_or_half_a_request_do_not_stop_the_server() {
    let directory = Directory::new("view-silent");
    let file = directory.file("one.pb", &profile("one"));
    let server = Server::new(&[&file]);
    let silent: Vec<TcpStream> = (0..50)
        .map(|number| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nHos").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(server.get("/").0, 200);
    drop(silent);
}

#[test]
fn a_bad_file_is_named() {
    let directory = Directory::new("view-bad");
    let bad = directory.file("bad.pb", b"nonsense");
    let empty = directory.path("empty");
    std::fs::create_dir(&empty).unwrap();
    for (file, cause) in [
        (bad.as_str(), ""),
        (&empty, "no post-mortem file"),
        ("/nonexistent", "no such file"),
    ] {
        let (line, code) = failure_of(&["view", "--no-open", file]);
        assert!(line.contains(file) && line.contains(cause), "{line}");
        assert_eq!(code, 1);
    }
    let good = directory.file("good.pb", &profile("good"));
    let server = Server::new(&[&good]);
    let port = server.address.rsplit(':').next().unwrap();
    let (line, code) = failure_of(&["view", "--no-open", "--port", port, &good]);
    assert!(
        line.contains(&server.address) && line.contains("in use"),
        "{line}"
    );
    assert_eq!(code, 1);
}
