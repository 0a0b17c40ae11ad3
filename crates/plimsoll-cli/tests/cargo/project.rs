//! Small packages in directories for temporary files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The command.
pub const CARGO_PLIMSOLL: &str = env!("CARGO_BIN_EXE_cargo-plimsoll");

/// A directory with files, removed on drop.
pub struct Project {
    directory: PathBuf,
}

impl Project {
    pub fn new(name: &str) -> Self {
        let name = format!("plimsoll-cargo-test-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self { directory }
    }

    /// Adds a file.
    pub fn file(self, name: &str, text: &str) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns `cargo plimsoll` in this directory.
    pub fn plimsoll(&self, words: &[&str]) -> Command {
        self.plimsoll_of(OsStr::new(CARGO_PLIMSOLL), words)
    }

    /// The same, of another file of the command.
    pub fn plimsoll_of(&self, file: &OsStr, words: &[&str]) -> Command {
        let mut command = Command::new(file);
        command
            .arg("plimsoll")
            .args(words)
            .current_dir(&self.directory);
        without_outer(&mut command);
        command
            .env("CARGO", cargo())
            .env("CARGO_NET_OFFLINE", "true");
        command
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the cargo that runs this test.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Removes the settings of the cargo that runs this test.
pub fn without_outer(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_outer = text.starts_with("CARGO_") && text != "CARGO_HOME";
        if is_outer || ["RUSTFLAGS", "LD_LIBRARY_PATH", "RUST_BACKTRACE"].contains(&&*text) {
            command.env_remove(&name);
        }
    }
}

pub fn output(mut command: Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Returns the standard output.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
