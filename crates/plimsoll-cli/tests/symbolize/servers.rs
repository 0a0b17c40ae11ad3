//! The servers of `DEBUGINFOD_URLS`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::command::Directory;
use crate::scene::{
    BUILD_ID, DEBUG, assert_complete, assert_unchanged, cached, profile, profile_of, reported,
    symbolize,
};

/// A server that answers each request by a function of its path, and notes the requests.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

/// The response to a path; `None` to wait until the client leaves.
type Respond = fn(&str) -> Option<Vec<u8>>;

impl Server {
    fn start(respond: Respond) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                    request.push(byte[0]);
                }
                let request = String::from_utf8(request).unwrap();
                let path = request.split(' ').nth(1).unwrap().to_owned();
                noted.lock().unwrap().push(request);
                match respond(&path) {
                    // The client may have left.
                    Some(response) => drop(stream.write_all(&response)),
                    None => drop(stream.read(&mut byte)),
                }
            }
        });
        Self { url, requests }
    }

    fn paths(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let path = |request: &String| request.split(' ').nth(1).unwrap().to_owned();
        requests.iter().map(path).collect()
    }
}

fn response(status: &str, body: &[u8]) -> Option<Vec<u8>> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    Some([head.as_bytes(), body].concat())
}

fn with_the_file(path: &str) -> Option<Vec<u8>> {
    assert_eq!(path, format!("/buildid/{BUILD_ID}/debuginfo"));
    response("200 OK", DEBUG)
}

fn without_files(_: &str) -> Option<Vec<u8>> {
    response("404 Not Found", b"not found")
}

#[test]
fn a_file_is_fetched_once_and_kept_where_elfutils_keeps_it() {
    let directory = Directory::new("symbolize-fetched");
    let (empty, server) = (Server::start(without_files), Server::start(with_the_file));
    let profile = profile(&directory, BUILD_ID);
    let urls = format!("{} {}/", empty.url, server.url);
    let variables = [("DEBUGINFOD_URLS", &*urls), ("PLIMSOLL_TOKEN", "secret")];
    for _ in 0..2 {
        let output = symbolize(&directory, &profile, &[], &variables);
        assert_eq!(reported(&output), "");
        assert_complete(&directory);
        assert_eq!(std::fs::read(cached(&directory)).unwrap(), DEBUG);
    }
    assert_eq!(empty.paths().len(), 1);
    assert_eq!(server.paths().len(), 1);
    // The token is for programs.
    assert!(!server.requests.lock().unwrap()[0].contains("secret"));
    let in_cache = std::fs::read_dir(cached(&directory).parent().unwrap()).unwrap();
    assert_eq!(in_cache.count(), 1);
}

#[test]
fn no_server_is_asked_without_need() {
    let directory = Directory::new("symbolize-needless");
    let server = Server::start(with_the_file);
    let profile = profile(&directory, BUILD_ID);
    let file = directory.file("file", DEBUG);
    let variables = [("DEBUGINFOD_URLS", &*server.url)];
    symbolize(&directory, &profile, &["--debug-file", &file], &variables);
    assert_complete(&directory);
    // Only `symbolize` asks servers, and only if the variable is set.
    let report = std::process::Command::new(crate::command::file_of_command())
        .args(["report", &profile])
        .envs(variables)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&report.stdout);
    assert!(shown.contains("split.so+0x3a5"), "{shown}");
    symbolize(&directory, &profile, &[], &[]);
    assert_unchanged(&directory, &profile);
    assert!(server.paths().is_empty());
}

#[test]
fn redirects_are_followed() {
    let directory = Directory::new("symbolize-redirect");
    let server = Server::start(|path| {
        match path {
        "/else/where" => response("200 OK", DEBUG),
        _ => Some(
            b"HTTP/1.1 302 Found\r\nLocation: /else/where\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_vec(),
        ),
    }
    });
    let profile = profile(&directory, BUILD_ID);
    let output = symbolize(
        &directory,
        &profile,
        &[],
        &[("DEBUGINFOD_URLS", &server.url)],
    );
    assert_eq!(reported(&output), "");
    assert_complete(&directory);
}

/// Each server fails in another way, and is asked for the first of three modules only.
#[test]
fn failures_are_reported_once_and_lose_nothing() {
    let truncated: Respond = |_| {
        let mut whole = response("200 OK", DEBUG)?;
        whole.truncate(whole.len() - 10);
        Some(whole)
    };
    let cases: [(Respond, &str); 5] = [
        (truncated, "the response is truncated"),
        (|_| None, "no response arrived within"),
        (
            |_| response("200 OK", b"<html>"),
            "the response is not an ELF file of this build id",
        ),
        (
            |_| response("500 Internal Server Error", b""),
            "the response has status 500",
        ),
        (
            |_| {
                Some(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec())
            },
            "too many redirects",
        ),
    ];
    let directory = Directory::new("symbolize-failures");
    let profile = profile_of(&directory, &[BUILD_ID, "abcd", "ef01"]);
    for (respond, cause) in cases {
        let server = Server::start(respond);
        let variables = [
            ("DEBUGINFOD_URLS", &*server.url),
            ("DEBUGINFOD_TIMEOUT", "1"),
        ];
        let output = symbolize(&directory, &profile, &[], &variables);
        let reported = reported(&output);
        let lines: Vec<&str> = reported.lines().collect();
        assert_eq!(lines.len(), 2, "{reported}");
        let subject = format!("plimsoll: {}/buildid/{BUILD_ID}/debuginfo: ", server.url);
        assert!(lines[0].starts_with(&subject), "{reported}");
        assert!(lines[0].contains(cause), "{reported}");
        assert!(lines[1].starts_with("plimsoll: addresses without names: 1 in "));
        assert_unchanged(&directory, &profile);
        assert!(!cached(&directory).exists());
        let (first, further) = (&server.paths()[0], &server.paths()[1..]);
        assert!(
            further.iter().all(|path| path == "/"),
            "{first} {further:?}"
        );
    }
}

#[test]
fn a_damaged_file_in_the_cache_is_fetched_again() {
    let directory = Directory::new("symbolize-cache");
    let server = Server::start(with_the_file);
    let profile = profile(&directory, BUILD_ID);
    std::fs::create_dir_all(cached(&directory).parent().unwrap()).unwrap();
    let variables = [("DEBUGINFOD_URLS", &*server.url)];
    // An empty file is elfutils' mark for a file that no server has.
    std::fs::write(cached(&directory), b"").unwrap();
    symbolize(&directory, &profile, &[], &variables);
    assert_unchanged(&directory, &profile);
    assert!(server.paths().is_empty());
    std::fs::write(cached(&directory), &DEBUG[..100]).unwrap();
    symbolize(&directory, &profile, &[], &variables);
    assert_complete(&directory);
    assert_eq!(server.paths().len(), 1);
}

#[test]
fn bad_settings_are_reported() {
    let directory = Directory::new("symbolize-settings");
    let profile = profile(&directory, BUILD_ID);
    let variables = [
        ("DEBUGINFOD_URLS", "http://127.0.0.1:1"),
        ("DEBUGINFOD_TIMEOUT", "soon"),
    ];
    let output = symbolize(&directory, &profile, &[], &variables);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "plimsoll: DEBUGINFOD_TIMEOUT: soon is not a number of seconds\n"
    );
    if cfg!(feature = "tls") {
        return;
    }
    let output = symbolize(
        &directory,
        &profile,
        &[],
        &[("DEBUGINFOD_URLS", "https://127.0.0.1:1")],
    );
    let reported = reported(&output);
    assert!(reported.contains("https is not supported by this build, which lacks the feature tls"));
    assert_unchanged(&directory, &profile);
}
