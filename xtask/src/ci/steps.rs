//! Runs the commands of a check in order, and prints the time at which each step begins.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

    /// The same as [`run`](Self::run), with variables. The error names failed tests, so that the last line of a long log says
    /// what failed. If a compiler is killed or crashes, which wrong code does not cause, the command runs once more. A command
    /// whose tests have failed never does, whatever they have printed.
    pub fn run_with(&self, variables: Variables<'_>, command: &str) -> Result<(), String> {
        self.run_once(variables, command).or_else(|error| {
            let are_tests = TESTS_FAILED.iter().any(|text| error.contains(text));
            if are_tests || !error.contains(DIED) {
                return Err(error);
            }
            println!("\n== once more, since a compiler died: {error}");
            self.run_once(variables, command)
        })
    }

    fn run_once(&self, variables: Variables<'_>, command: &str) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("{command}: {error}");
        let mut child = self
            .command(variables, command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let causes = Arc::new(Mutex::new(Vec::new()));
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let readers = [
            output.map(|output| pass_on(output, std::io::stdout(), &[" ... FAILED"], &causes)),
            errors.map(|errors| {
                pass_on(
                    errors,
                    std::io::stderr(),
                    &["error", "  process didn't exit successfully"],
                    &causes,
                )
            }),
        ];
        let status = child.wait().map_err(fail)?;
        // A process that the command has left behind may keep its output open.
        let until = Instant::now() + OUTPUT_TIME;
        for reader in readers.into_iter().flatten() {
            while !reader.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        let causes = causes
            .lock()
            .map_or_else(|_| Vec::new(), |causes| causes.clone());
        match status.success() {
            true => Ok(()),
            false => Err(format!("{status}: {command}: {}", causes.join("; "))),
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

/// The time for the rest of the output after the end of a command.
const OUTPUT_TIME: Duration = Duration::from_secs(5);

/// What Cargo's line contains that names the command of a compiler that did not end by itself, and how it ended.
const DIED: &str = "rustc --crate-name ";

/// What a line says about a test that has failed, and about a program of tests that has.
const TESTS_FAILED: [&str; 2] = [" ... FAILED", "error: test failed"];

/// Passes a command's output on, in a thread, without the middle of long lines. Adds its first lines that begin or end with
/// one of some texts to `found`.
fn pass_on(
    output: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    texts: &'static [&'static str],
    found: &Arc<Mutex<Vec<String>>>,
) -> JoinHandle<()> {
    const MAX_LINES: usize = 20;
    let found = Arc::clone(found);
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = without_middle(&line);
            // A closed output ends this program by its own next line.
            let _ = writeln!(to, "{line}");
            let is_cause = |text: &&str| line.ends_with(text) || line.starts_with(text);
            if let (true, Ok(mut found)) = (texts.iter().any(is_cause), found.lock())
                && found.len() < MAX_LINES
            {
                found.push(line.trim().to_owned());
            }
        }
    })
}

/// Returns a line without its middle if it is longer than a log should keep: the command of a compiler is, and its end
/// says how it died.
fn without_middle(line: &[u8]) -> String {
    const END: usize = 400;
    match line.len() {
        0..=2000 => String::from_utf8_lossy(line).into_owned(),
        length => {
            let ends = [&line[..END], &line[length - END..]].map(String::from_utf8_lossy);
            ends.join(" [...] ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_begin_or_end_with_a_text_are_found() {
        let output = "test a ... ok\ntest b ... failed\nfailed: c\nnothing failed here\n";
        let cases: [(&[&str], &[&str]); 3] = [
            (&[" ... failed"], &["test b ... failed"]),
            (&["failed"], &["test b ... failed", "failed: c"]),
            (
                &["test a", "nothing"],
                &["test a ... ok", "nothing failed here"],
            ),
        ];
        for (texts, expected) in cases {
            let found = Arc::default();
            let reader = pass_on(output.as_bytes(), std::io::sink(), texts, &found);
            reader.join().unwrap();
            assert_eq!(*found.lock().unwrap(), expected);
        }
    }

    #[test]
    fn the_end_of_a_long_line_is_kept() {
        let line = format!("  `/bin/{DIED}x {}` (signal: 9)", "-L x ".repeat(1000));
        let short = without_middle(line.as_bytes());
        assert!(short.starts_with("  `/bin/rustc") && short.ends_with("` (signal: 9)"));
        assert!(short.len() < 1000);
        assert_eq!(without_middle(b"short"), "short");
    }

    #[test]
    fn only_a_compiler_that_died_is_run_again() {
        let folder = std::env::temp_dir().join(format!("xtask-again-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // Cargo quotes the command of what failed.
        let script = "echo run >> runs
            echo \"  process didn't exit successfully: \\`$1\\`\" >&2
            echo \"$2\" >&2
            exit 101";
        let steps = Steps::begin(&folder);
        let compiler = "/bin/rustc --crate-name x";
        let cases = [
            (compiler, "error: could not compile", 2),
            ("/target/tests --x", "error: test failed, to rerun", 1),
            // A test has printed this.
            (compiler, "error: test failed, to rerun", 1),
        ];
        for (died, says, expected) in cases {
            let script = script.replace("$1", died).replace("$2", says);
            std::fs::write(folder.join("script"), script).unwrap();
            let error = steps.run("sh script").unwrap_err();
            assert!(error.contains(died), "{error}");
            let runs = std::fs::read_to_string(folder.join("runs")).unwrap();
            assert_eq!(runs.lines().count(), expected, "{died}: {says}");
            std::fs::remove_file(folder.join("runs")).unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_process_that_a_command_leaves_behind_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("xtask-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("script"),
            "sleep 600 &\necho $! > left\nexit 3\n",
        )
        .unwrap();
        let error = Steps::begin(&folder).run("sh script").unwrap_err();
        let left = std::fs::read_to_string(folder.join("left")).unwrap();
        let kill = |signal: &str| {
            let mut command = Command::new("kill");
            command.args([signal, left.trim()]).status().unwrap()
        };
        assert!(kill("-0").success(), "it still runs");
        assert!(kill("-9").success());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(error, "exit status: 3: sh script: ");
    }
}
