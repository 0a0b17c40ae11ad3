//! `plimsoll ship`: files move to a directory or an HTTP server, and none is lost.
//!
//! Processes that leave post-mortem files run this program again with the test [`work`].

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[path = "../command/mod.rs"]
mod command;
mod endings;
mod files;
mod network;
#[path = "../port/mod.rs"]
mod port;
mod programs;
#[path = "../proto/mod.rs"]
mod proto;
mod server;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use command::{Directory, file_of_command};
use proto::{Writer, gzip};

/// The variable that makes [`work`] allocate and wait.
const WORK: &str = "PLIMSOLL_TEST_WORK";

/// Allocates and waits for its end.
#[test]
fn work() {
    if std::env::var_os(WORK).is_none() {
        return;
    }
    let blocks: Vec<Vec<u8>> = (0..400).map(|_| vec![1; 10_000]).collect();
    println!("\nready");
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(blocks);
}

/// Starts a process that counts in a post-mortem file, and waits until it has allocated.
fn process(file: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["work", "--exact", "--nocapture", "--test-threads=1"])
        .env(WORK, "1")
        .env("PLIMSOLL", format!("postmortem={file},heap_rate=4k"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
    child
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The directories of a test.
struct Scene {
    directory: Directory,
}

impl Scene {
    fn new(test: &str) -> Self {
        let directory = Directory::new(&format!("ship-{test}"));
        for name in ["from", "to"] {
            fs::create_dir(directory.0.join(name)).unwrap();
        }
        Self { directory }
    }

    fn from(&self) -> String {
        self.directory.path("from")
    }

    fn to(&self) -> String {
        self.directory.path("to")
    }

    /// Writes a profile with one site.
    fn profile(&self, name: &str, value: i64) -> Vec<u8> {
        let bytes = profile(value);
        let path = Path::new(&self.from()).join(name);
        fs::write(path.with_extension("part"), &bytes).unwrap();
        fs::rename(path.with_extension("part"), path).unwrap();
        bytes
    }

    /// Returns the sorted names of files in a directory of the test.
    fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.directory.0.join(directory)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Returns the names of files that wait in the source.
    fn waiting(&self) -> Vec<String> {
        let mut names = self.names("from/.plimsoll-ship");
        names.retain(|name| name != "lock");
        names
    }
}

fn profile(value: i64) -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_space", "bytes")]);
    writer.sample(&["leaf", "main"], &[value]);
    gzip(&writer.finish())
}

/// Returns the command with arguments.
fn ship(arguments: &[&str]) -> Command {
    let mut command = Command::new(file_of_command());
    command.arg("ship").args(arguments).stdin(Stdio::null());
    command
}

/// Runs the command to its end; returns its output, standard error and status.
fn run(command: &mut Command) -> (String, String, Option<i32>) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code())
}

/// Starts the command, which ends by a signal.
fn start(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: `kill` takes no pointers, and the child is not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Waits for the end; returns the output, standard error and status.
fn end(child: Child) -> (String, String, Option<i32>) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code(),
    )
}

fn wait_for(what: &str, mut state: impl FnMut() -> bool) {
    let start = Instant::now();
    while !state() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "timed out: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the path of the only file whose name ends so.
fn only(directory: &str, end: &str) -> PathBuf {
    let paths = fs::read_dir(directory).unwrap();
    let mut paths = paths.map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.to_str().unwrap().ends_with(end);
    let found = paths.find(is_one).unwrap_or_else(|| panic!("no {end}"));
    assert!(!paths.any(|path| is_one(&path)), "several {end}");
    found
}
