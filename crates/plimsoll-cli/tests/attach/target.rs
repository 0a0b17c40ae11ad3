//! Processes that the tests read.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::file_of_command;

/// How long a test waits for a state.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `is_so` returns a value. Panics with `what` after a time.
pub fn wait_for<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the program with known threads; `None` if the compiler is not installed.
pub fn known() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| build("known", "gcc", &["-O1", "-g", "-pthread"]))
        .as_deref()
}

/// Compiles the program with known threads.
pub fn build(name: &str, compiler: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attach/known.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("attach-{}-{name}", std::process::id()));
    let built = Command::new(compiler)
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .output();
    let Ok(built) = built else {
        plimsoll_testkit::skip!("{compiler} is not installed");
        return None;
    };
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    Some(program)
}

/// A process that ends with its test.
pub struct Target {
    pub child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

/// What the program with known threads counts.
#[derive(Debug)]
pub struct Counts {
    /// System calls that returned early.
    pub interrupted: u64,
    /// Signals that were sent, and that were handled.
    pub sent: u64,
    pub handled: u64,
    /// Threads that were created, or events.
    pub turns: u64,
}

/// Returns the letter of the state of a thread, by its directory.
fn state(thread: &Path) -> char {
    let stat = fs::read_to_string(thread.join("stat")).expect("it exists");
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    fields.trim().chars().next().expect("a state")
}

impl Target {
    /// Starts a command, whose process is the target.
    pub fn start(command: &mut Command) -> Self {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be started");
        let mut target = Self {
            child,
            input: None,
            output: None,
        };
        target.input = target.child.stdin.take();
        target.output = target.child.stdout.take().map(BufReader::new);
        target
    }

    /// Starts the program with known threads, and waits until it has started them.
    pub fn known(program: &Path, threads: &[&str]) -> Self {
        let mut target = Self::start(Command::new(program).args(threads));
        assert_eq!(target.line(), "ready\n");
        target
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns the next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.output.as_mut().expect("piped");
        output.read_line(&mut line).expect("text");
        line
    }

    pub fn counts(&mut self) -> Counts {
        let input = self.input.as_mut().expect("piped");
        input.write_all(b"x").expect("it reads");
        let line = self.line();
        let mut numbers = line
            .split_ascii_whitespace()
            .map(|number| number.parse().expect("a number"));
        let mut next = || numbers.next().expect("four numbers");
        Counts {
            interrupted: next(),
            sent: next(),
            handled: next(),
            turns: next(),
        }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Returns the letter of the state of its first thread.
    pub fn state(&self) -> char {
        state(Path::new(&format!("/proc/{}", self.pid())))
    }

    /// Returns the letters of the states of all its threads.
    pub fn states(&self) -> Vec<char> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it exists");
        let threads = threads.map(|thread| thread.expect("readable").path());
        threads.map(|thread| state(&thread)).collect()
    }

    /// Waits until all threads of these names have their state.
    pub fn wait_until_blocked(&self, threads: &[(&str, &str)]) -> Value {
        wait_for("all threads blocked", || {
            let view = json(self.pid());
            let is_so = threads.iter().all(|&(name, call)| {
                let mut found = with_name(&view, name).peekable();
                found.peek().is_some() && found.all(|thread| thread["system_call"] == call)
            });
            is_so.then_some(view)
        })
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `plimsoll attach`.
pub fn attach(pid: i32, options: &[&str]) -> Output {
    let mut command = Command::new(file_of_command());
    command.arg("attach").arg(pid.to_string()).args(options);
    command.output().expect("it can be run")
}

/// Returns the output of `plimsoll attach`, which succeeds.
pub fn text(pid: i32, options: &[&str]) -> String {
    let output = attach(pid, options);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{complaint}");
    assert_eq!(complaint, "");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the view of a process.
pub fn json(pid: i32) -> Value {
    serde_json::from_str(&text(pid, &["--json"])).expect("JSON")
}

/// Returns the threads of a name.
pub fn with_name<'v>(view: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    let threads = view["threads"].as_array().expect("a list").iter();
    threads.filter(move |thread| thread["name"] == name)
}

/// Returns the only thread of a name.
pub fn thread<'v>(view: &'v Value, name: &str) -> &'v Value {
    let mut found = with_name(view, name);
    let thread = found.next().unwrap_or_else(|| panic!("no {name}: {view}"));
    assert!(found.next().is_none(), "{name}: {view}");
    thread
}

/// Returns the names of the functions on a thread's stack, leaf first.
pub fn functions(thread: &Value) -> Vec<&str> {
    let frames = thread["stack"]["frames"].as_array().expect("a list");
    let names = frames.iter().map(|frame| frame["function"].as_str());
    names.map(|name| name.expect("a name")).collect()
}
