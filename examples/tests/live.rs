//! The example as its users run it: started as a program, under its own load, and looked into over
//! HTTP. If there is a Go toolchain (`PLIMSOLL_GO`, or `go` in `PATH`), its tool looks as well.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The running example; killed when it is dropped.
struct Search {
    process: Child,
    /// `host:port` of the pages.
    profiles: String,
}

impl Search {
    fn start() -> Self {
        let mut process = Command::new(built())
            .args([env!("CARGO_MANIFEST_DIR"), "--listen", "127.0.0.1:0"])
            .args(["--load", "2", "--seconds", "120"])
            .env(
                "PLIMSOLL",
                "http=127.0.0.1:0,heap_rate=16k,block_rate=1us,mutex_fraction=1",
            )
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

    /// Status and headers, and body, of a page.
    fn get(&self, page: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.profiles).expect("it serves");
        let host = &self.profiles;
        let request = format!("GET /debug/pprof/{page} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let body = answer.split_off(end.expect("a head") + 4);
        (String::from_utf8(answer).expect("text"), body)
    }
}

impl Search {
    /// A page in text, once it has what is `wanted`, or after a minute.
    fn text_when(&self, page: &str, wanted: impl Fn(&str) -> bool) -> String {
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

fn go() -> Option<PathBuf> {
    let promised = std::env::var_os("PLIMSOLL_GO");
    let go = PathBuf::from(promised.as_deref().unwrap_or("go".as_ref()));
    match Command::new(&go).arg("version").output() {
        Ok(output) if output.status.success() => Some(go),
        _ if promised.is_some() => panic!("PLIMSOLL_GO={} does not run", go.display()),
        _ => {
            eprintln!("go was not found: its tool is not tried");
            None
        }
    }
}

#[test]
fn the_running_example_shows_what_is_in_it() {
    let search = Search::start();
    let (head, index) = search.get("");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let index = String::from_utf8(index).unwrap();
    assert!(index.contains("Types of profiles available:") && index.contains("heap?debug=1"));

    let (head, body) = search.get("heap");
    assert!(
        head.contains("Content-Type: application/octet-stream")
            && head.contains("Content-Disposition: attachment; filename=\"heap\""),
        "{head}"
    );
    assert!(body.starts_with(&[0x1f, 0x8b]), "it is gzip");

    let (_, text) = search.get("heap?debug=1");
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("heap profile: ") && text.contains("# HeapAlloc = "));
    assert!(text.contains("search::index::"), "the index is in its heap");
    assert!(
        !text.contains("plimsoll::symbol"),
        "what Plimsoll needs is not"
    );

    // Every request takes the lock of the cache, and that of the counts.
    for (page, begins) in [
        (
            "block?debug=1",
            "--- contention:\ncycles/second=1000000000\n",
        ),
        (
            "mutex?debug=1",
            "--- mutex:\ncycles/second=1000000000\nsampling period=1\n",
        ),
    ] {
        let text = search.text_when(page, |text| {
            text.contains("search::store::Snapshot") && text.contains("search::popular::Popular")
        });
        assert!(text.starts_with(begins), "{text}");
    }

    let (head, _) = search.get("allocs?seconds=1");
    assert!(head.contains("filename=\"allocs-delta\""), "{head}");
    let (head, body) = search.get("heap?seconds=soon");
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(
        String::from_utf8(body).unwrap(),
        "invalid value for \"seconds\" - must be a positive integer\n"
    );

    let Some(go) = go() else { return };
    for (page, arguments, expected) in [
        ("heap", &["-top"][..], "search::index::"),
        (
            "heap",
            &["-raw"],
            "PeriodType: space bytes\nPeriod: 16384\n",
        ),
        ("allocs", &["-top", "-cum"], "Type: alloc_space"),
        ("allocs?seconds=1", &["-top"], "Duration: 1"),
        ("mutex", &["-top"], "Type: delay"),
        ("block", &["-raw"], "contentions/count delay/nanoseconds"),
        (
            "mutex?seconds=1",
            &["-top", "-sample_index=contentions"],
            "Type: contentions",
        ),
    ] {
        let url = format!("http://{}/debug/pprof/{page}", search.profiles);
        // The tool keeps a copy of what it fetches.
        let keep = std::env::temp_dir().join(format!("plimsoll-live-{}", std::process::id()));
        let output = Command::new(&go)
            .args(["tool", "pprof"])
            .args(arguments)
            .arg(&url)
            .env("PPROF_TMPDIR", &keep)
            .output()
            .expect("go can be run");
        let _ = std::fs::remove_dir_all(&keep);
        let said = String::from_utf8_lossy(&output.stdout);
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{url}: {said}{complained}");
        assert!(
            said.contains(expected),
            "{url}: no {expected} in {said}{complained}"
        );
    }
}
