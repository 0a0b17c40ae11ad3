//! A running service.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_bench::{clock, environment};

/// The arguments of every service before the port. Only `web` reads them.
const ARGUMENTS: [&str; 5] = ["--host", "127.0.0.1", "--root", ".", "--port"];

/// A process of a service. It is killed when this is dropped.
pub struct Process(Child);

impl Process {
    /// Starts a program in a directory with these settings.
    pub fn start(program: &Path, port: u16, settings: &str, directory: &Path) -> Self {
        let mut command = Command::new(program);
        environment::plain(&mut command).env("PLIMSOLL", settings);
        command.args(ARGUMENTS).arg(port.to_string());
        command.current_dir(directory).stdin(Stdio::piped());
        let child = command.stdout(Stdio::piped()).spawn();
        Self(child.expect("it was built"))
    }

    /// Reads the next state that the service prints.
    pub fn state(&mut self) -> String {
        let output = self.0.stdout.as_mut().expect("it is a pipe");
        // The next state is printed only after a command: nothing more is in the buffer.
        let state = BufReader::new(output).lines().next();
        state.expect("the service runs").expect("it is text")
    }

    /// Switches Plimsoll off. The service then prints its state.
    pub fn switch_off(&mut self) {
        let input = self.0.stdin.as_mut().expect("it is a pipe");
        input.write_all(b"off\n").expect("the service runs");
    }

    /// Returns the CPU time in nanoseconds.
    pub fn cpu(&self) -> u64 {
        clock::of_process(self.0.id())
    }

    /// Returns a number in the status of the process. Memory is in KiB.
    pub fn status(&self, field: &str) -> f64 {
        status(&self.folder(), field).expect("the service runs")
    }

    /// Waits, and returns the voluntary context switches of all threads meanwhile. Threads that end are not counted.
    pub fn switches_in(&self, time: Duration) -> f64 {
        let threads = fs::read_dir(self.folder().join("task")).expect("the service runs");
        let threads: Vec<_> = threads.flatten().map(|thread| thread.path()).collect();
        let read = |thread: &PathBuf| status(thread, "voluntary_ctxt_switches:");
        let before: Vec<_> = threads.iter().map(read).collect();
        std::thread::sleep(time);
        let pairs = threads.iter().map(read).zip(before);
        let added = pairs.filter_map(|(after, before)| Some(after? - before?));
        added.sum()
    }

    fn folder(&self) -> PathBuf {
        format!("/proc/{}", self.0.id()).into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the number of a field in the file `status` of a folder.
fn status(folder: &Path, field: &str) -> Option<f64> {
    let text = fs::read_to_string(folder.join("status")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.split_whitespace().next()?.parse().ok()
}
