//! An example as users run it: started as a program, and read over HTTP.

// Each test binary uses a part of this module.
#![allow(dead_code)]

pub mod prometheus;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testkit::examples;

/// A running example; killed on drop.
pub struct Running {
    process: Child,
    /// `host:port` of the profiles.
    pub profiles: String,
    /// `host:port` of the example's own service, if it has one.
    pub service: Option<String>,
}

impl Running {
    /// Starts an example, and waits until it prints the address of its pages.
    pub fn start(name: &str, arguments: &[&str], settings: &str) -> Self {
        let mut process = Command::new(built(name))
            .args(arguments)
            .env("PLIMSOLL", format!("http=127.0.0.1:0,{settings}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the example can be run");
        let said = BufReader::new(process.stdout.take().expect("piped"));
        let (mut profiles, mut service) = (None, None);
        for line in said.lines() {
            let line = line.expect("text");
            if let Some((_, url)) = line.split_once("search      http://") {
                let address = url.split('/').next();
                service = address.map(str::to_owned);
            }
            if let Some((_, url)) = line.split_once("profiles    http://") {
                let address = url.strip_suffix("/debug/pprof/").expect(url);
                profiles = Some(address.to_owned());
                break;
            }
        }
        Self {
            process,
            profiles: profiles.expect("it says where its profiles are"),
            service,
        }
    }

    /// Starts the example `search` with its own load, and with settings besides the address of the
    /// pages.
    pub fn search(settings: &str) -> Self {
        let arguments = [env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"];
        let load = ["--load", "2", "--seconds", "300"];
        Self::start("search", &[&arguments[..], &load].concat(), settings)
    }

    /// Returns the status and headers, and the body, of a page of profiles.
    pub fn get(&self, page: &str) -> (String, Vec<u8>) {
        get(&self.profiles, &format!("/debug/pprof/{page}")).expect("it serves")
    }

    /// Returns the text of a page once it is `wanted`. Waits for four minutes, less than the example runs.
    pub fn text_when(&self, page: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let (_, text) = self.get(page);
            let text = String::from_utf8(text).expect("text");
            if wanted(&text) {
                return text;
            }
            assert!(start.elapsed() < Duration::from_secs(240), "{page}: {text}");
        }
    }

    /// Returns the output of Go's tool for a page.
    pub fn pprof(&self, go: &PathBuf, arguments: &[&str], page: &str) -> String {
        let url = format!("http://{}/debug/pprof/{page}", self.profiles);
        // The tool keeps a copy of each profile that it fetches.
        let keep = std::env::temp_dir().join(format!("plimsoll-live-{}", std::process::id()));
        // By default, the tool waits only a few seconds longer than the profile takes.
        let output = Command::new(go)
            .args(["tool", "pprof", "-timeout=60"])
            .args(arguments)
            .arg(&url)
            .env("PPROF_TMPDIR", &keep)
            .output()
            .expect("go can be run");
        let _ = std::fs::remove_dir_all(&keep);
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {said}{complained}");
        format!("{said}{complained}")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the status and headers, and the body, of a path at `host:port`.
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

/// Builds an example with this test's profile, and returns its path. The features are those of a test
/// of the whole workspace, which has compiled the dependencies.
pub fn built(name: &str) -> PathBuf {
    let arguments = ["--workspace", "--example", name];
    examples::build(env!("CARGO_MANIFEST_DIR"), &arguments);
    examples::path(name)
}
