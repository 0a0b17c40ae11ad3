//! Runs the commands of a check in order, and prints the time at which each step begins.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Environment variables of a command.
pub type Variables<'a> = &'a [(&'a str, &'a str)];

/// The steps of a check. All commands run at the root of the project.
pub struct Steps {
    root: PathBuf,
    began: Instant,
}

impl Steps {
    /// Starts a check now.
    pub fn begin(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            began: Instant::now(),
        }
    }

    /// Returns the folder for tools and for special builds.
    pub fn tools(&self) -> PathBuf {
        self.root.join("target/ci")
    }

    /// Returns a path below the root of the project.
    pub fn path(&self, below: &str) -> String {
        self.root.join(below).to_string_lossy().into_owned()
    }

    /// Prints the name of the next step.
    pub fn step(&self, name: &str) {
        println!("\n== {name} (after {} s)", self.began.elapsed().as_secs());
    }

    /// Runs a command, given as words separated by spaces.
    ///
    /// # Errors
    /// The command cannot be run, or fails.
    pub fn run(&self, command: &str) -> Result<(), String> {
        self.run_with(&[], command)
    }

    /// The same as [`run`](Self::run), with variables.
    pub fn run_with(&self, variables: Variables<'_>, command: &str) -> Result<(), String> {
        let status = self.command(variables, command).status();
        let status = status.map_err(|error| format!("{command}: {error}"))?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("{status}: {command}")),
        }
    }

    /// Starts a command that prints to a file, beside the next steps.
    pub fn start(
        &self,
        variables: Variables<'_>,
        command: &str,
        log: &Path,
    ) -> Result<Child, String> {
        let output = std::fs::File::create(log).map_err(|error| error.to_string())?;
        let errors = output.try_clone().map_err(|error| error.to_string())?;
        let mut command = self.command(variables, command);
        command.stdout(output).stderr(errors).stdin(Stdio::null());
        command.spawn().map_err(|error| error.to_string())
    }

    /// Returns whether a command succeeds; discards its output.
    pub fn succeeds(&self, command: &str) -> bool {
        let mut command = self.command(&[], command);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|status| status.success())
    }

    fn command(&self, variables: Variables<'_>, command: &str) -> Command {
        let mut words = command.split_whitespace();
        let mut command = Command::new(words.next().expect("a command has a program"));
        command
            .args(words)
            .envs(variables.iter().copied())
            .current_dir(&self.root);
        // Cargo sets this variable for this program; it would override the toolchain of `cargo
        // +nightly`.
        command.env_remove("RUSTUP_TOOLCHAIN");
        command.env_remove("CARGO");
        command
    }
}
