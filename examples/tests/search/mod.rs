//! The example, as a program that runs.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The running example; killed when it is dropped.
pub struct Search {
    process: Child,
    /// `host:port` of the pages.
    pub profiles: String,
}

impl Search {
    /// With settings beside that of where the pages are.
    pub fn start(settings: &str) -> Self {
        let mut process = Command::new(built())
            .args([env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"])
            .args(["--load", "2", "--seconds", "120"])
            .env("PLIMSOLL", format!("http=127.0.0.1:0,{settings}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example can be run");
        let said = BufReader::new(process.stdout.take().expect("piped"));
        let mut profiles = None;
        for line in said.lines() {
            let line = line.expect("text");
            if let Some((_, url)) = line.split_once("profiles    http://") {
                let address = url.strip_suffix("/debug/pprof/").expect(url);
                profiles = Some(address.to_owned());
                break;
            }
        }
        Self {
            process,
            profiles: profiles.expect("it says where its profiles are"),
        }
    }

    /// Status and headers, and body, of a page of profiles.
    pub fn get(&self, page: &str) -> (String, Vec<u8>) {
        get(&self.profiles, &format!("/debug/pprof/{page}")).expect("it serves")
    }

    /// A page in text, once it has what is `wanted`, or after a minute.
    pub fn text_when(&self, page: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let (_, text) = self.get(page);
            let text = String::from_utf8(text).expect("text");
            if wanted(&text) {
                return text;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{page}: {text}");
        }
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The example, built as this test was.
fn built() -> PathBuf {
    let cargo = std::env::var_os("CARGO").expect("run by cargo");
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--example", "search"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo can be run");
    assert!(status.success());
    // This test is in `deps` of the directory that examples are in.
    let here = std::env::current_exe().expect("the test has a path");
    let programs = here.parent().and_then(|deps| deps.parent());
    programs
        .expect("two directories up")
        .join("examples/search")
}

/// Status and headers, and body, of what is at a path of `host:port`.
pub fn get(host: &str, path: &str) -> std::io::Result<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(host)?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(end.ok_or(std::io::ErrorKind::UnexpectedEof)? + 4);
    Ok((String::from_utf8_lossy(&answer).into_owned(), body))
}
