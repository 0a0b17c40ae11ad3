//! The emulated machine: starts it, prints its console, and ends it when it hangs.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::protocol::{Line, Transcript};

/// The emulator.
pub const EMULATOR: &str = "qemu-system-aarch64";

/// The time from the start of the emulator to the marker `ready`.
const BOOT: Duration = Duration::from_secs(180);
/// The time that the machine may take between two markers, beside the time limit of a binary.
const GRACE: Duration = Duration::from_secs(60);

/// A running emulator. Dropping it ends it.
pub struct Machine {
    emulator: Child,
    lines: Receiver<String>,
}

impl Machine {
    /// Starts a machine of two processors and 3 GiB.
    ///
    /// # Errors
    /// The emulator cannot be started.
    pub fn start(kernel: &Path, image: &Path) -> Result<Self, String> {
        let mut command = Command::new(EMULATOR);
        command
            .args(["-machine", "virt", "-cpu", "cortex-a72"])
            .args(["-smp", "2", "-m", "3G", "-accel", "tcg,thread=multi"])
            .args(["-nographic", "-no-reboot", "-nic", "none"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(image)
            // A panic ends the emulator, since a reboot does.
            .args(["-append", "console=ttyAMA0 panic=-1 quiet"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut emulator = command
            .spawn()
            .map_err(|error| format!("{EMULATOR}: {error}"))?;
        let console = emulator.stdout.take().expect("the output is a pipe");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(console).split(b'\n') {
                let Ok(line) = line else { return };
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { emulator, lines })
    }

    /// Prints the console, and writes it to `log`, until the machine ends. Ends it if no marker
    /// comes in time. Returns what was wrong with its end.
    ///
    /// # Errors
    /// The log cannot be written.
    pub fn run(mut self, transcript: &mut Transcript, log: &Path) -> Result<Vec<String>, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let mut log_file = File::create(log).map_err(failed)?;
        let mut deadline = Instant::now() + BOOT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) if !left.is_zero() => line,
                Err(RecvTimeoutError::Disconnected) => break,
                // Or it prints without end.
                Ok(_) | Err(RecvTimeoutError::Timeout) => {
                    let phase = match transcript.is_ready() {
                        true => "its init script printed no marker in time",
                        false => "it did not boot in time",
                    };
                    return Ok(vec![format!("the machine hung and was ended: {phase}")]);
                }
            };
            writeln!(log_file, "{}", line.trim_end()).map_err(failed)?;
            let line = Line::parse(&line);
            transcript.add(&line);
            match line {
                Line::Text(text) => {
                    if !transcript.is_in_file() {
                        println!("{text}");
                    }
                    continue;
                }
                Line::Begin(name) => println!("\n== {name}"),
                Line::Panic(message) => println!("{message}"),
                _ => {}
            }
            let limit = transcript.running_limit().unwrap_or_default();
            deadline = Instant::now() + GRACE + Duration::from_secs(limit.into());
        }
        let status = self.emulator.wait();
        let status = status.map_err(|error| format!("{EMULATOR}: {error}"))?;
        Ok(fault_of(status))
    }
}

fn fault_of(status: ExitStatus) -> Vec<String> {
    match status.success() {
        true => Vec::new(),
        false => vec![format!("{EMULATOR} failed: {status}")],
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.emulator.kill();
        let _ = self.emulator.wait();
    }
}
