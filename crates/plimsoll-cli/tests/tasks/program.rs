//! The program whose tasks are read: the example `every_await` of `plimsoll-awaits`, with types in its debug information.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::command::stdout_of;

/// Named so that flags for the program are not for what compiles it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The settings of Cargo with which it builds types, and optimizes.
pub const PLAIN: &[&str] = &[
    "profile.dev.debug='full'",
    "profile.dev.package.'*'.debug='full'",
];
pub const OPTIMIZED: &[&str] = &[
    "profile.dev.debug='full'",
    "profile.dev.package.'*'.debug='full'",
    "profile.dev.lto='fat'",
    "profile.dev.opt-level=3",
    "profile.dev.panic='abort'",
];

/// Returns the program, as an ordinary build makes it.
pub fn plain() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("tasks-plain", PLAIN))
}

/// Builds the program in a folder, and returns its path.
pub fn build(folder: &str, settings: &[&str]) -> PathBuf {
    let example = ["-p", "plimsoll-awaits", "--example", "every_await"];
    build_package(folder, &example, settings).join("examples/every_await")
}

/// Builds the program with tracked tasks in a folder, and returns its path.
pub fn build_tracked(folder: &str, settings: &[&str]) -> PathBuf {
    let package = ["-p", "plimsoll-tracked-tasks"];
    build_package(folder, &package, settings).join("plimsoll-tracked-tasks")
}

/// Returns the folder of the programs.
fn build_package(folder: &str, package: &[&str], settings: &[&str]) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--target", TARGET])
        .args(package)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(settings.iter().flat_map(|setting| ["--config", *setting]))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    target.join(TARGET).join("debug")
}

/// The tasks of the program that others await: one by its handle, and one in a set.
pub const HELPERS: usize = 2;

/// The running program. It ends with its input.
pub struct Running {
    pub child: Child,
    pub input: ChildStdin,
    pub output: BufReader<ChildStdout>,
    /// The name of each task, and what it waits for at last, by tokio's number.
    pub tasks: HashMap<u64, (String, String)>,
}

impl Running {
    /// Starts the program with a number of tasks that change what they await.
    pub fn start(program: &Path, changing: u32) -> Self {
        Self::start_with(program, &[&changing.to_string()])
    }

    pub fn start_with(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut tasks = HashMap::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "it does not end");
            let line = line.trim_end();
            if line == "ready" {
                break;
            }
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            let [id, name, leaf] = words[..] else {
                panic!("{line}");
            };
            tasks.insert(id.parse().unwrap(), (name.to_owned(), leaf.to_owned()));
        }
        Self {
            input: child.stdin.take().unwrap(),
            child,
            output,
            tasks,
        }
    }

    /// Returns what the command prints with options.
    pub fn text(&self, options: &[&str]) -> String {
        let pid = self.child.id().to_string();
        stdout_of(&[&["tasks", &*pid], options].concat())
    }

    /// Returns the only runtime.
    pub fn runtime(&self) -> Value {
        let mut runtimes = self.runtimes();
        assert_eq!(runtimes.len(), 1, "{runtimes:?}");
        runtimes.remove(0)
    }

    /// Returns all runtimes and sets of tasks, once there are this many and all tasks of the program wait.
    pub fn runtimes_at_rest(&self, count: usize) -> Vec<Value> {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let found = self.runtimes();
            let tasks = found.iter().flat_map(|of| of["tasks"].as_array().unwrap());
            let waiting = tasks.filter(|task| task["activity"] == "idle");
            if found.len() == count && waiting.count() == self.tasks.len() + HELPERS {
                return found;
            }
            assert!(Instant::now() < end, "{found:?}");
        }
    }

    /// Returns all runtimes and sets of tasks.
    pub fn runtimes(&self) -> Vec<Value> {
        let mut value: Value = serde_json::from_str(&self.text(&["--json"])).unwrap();
        std::mem::take(value["runtimes"].as_array_mut().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
