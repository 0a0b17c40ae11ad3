//! Compilers and packages for targets other than this machine.

mod debian;
mod toolchain;

pub use debian::{ForeignPackages, install};
pub use toolchain::{Origin, Toolchain, add_libraries, prepare};

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Whether a program of this name is in a folder of `PATH`.
pub fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a command and returns its standard output, without spaces at the end.
///
/// # Errors
/// The command cannot be run, or fails. The message has its last line of errors.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", described(command)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().into());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.trim_end().lines().last().unwrap_or_default();
    Err(format!("{}: {}: {last}", output.status, described(command)))
}

/// Runs a command with its output on the terminal, and kills it after a time.
///
/// # Errors
/// The command cannot be run, fails, or takes longer than `limit`.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<(), String> {
    let child = command.stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("{}: {error}", described(command)))?;
    let began = Instant::now();
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{status}: {}", described(command))),
            None if began.elapsed() > limit => {
                // Fails if the command has just ended.
                let _ = child.kill();
                let _ = child.wait();
                let seconds = limit.as_secs();
                return Err(format!("no end in {seconds} s: {}", described(command)));
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// The program and its arguments.
fn described(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    command.get_args().fold(program, |mut words, argument| {
        words.push(' ');
        words.push_str(&argument.to_string_lossy());
        words
    })
}

/// A command without the variables by which `cargo run` selects its own toolchain.
pub fn plain(program: impl AsRef<std::ffi::OsStr>, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root);
    for variable in ["CARGO", "LD_LIBRARY_PATH", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
}
