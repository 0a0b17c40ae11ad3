//! Programs that are compiled for a test, and their runs.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// The beginning of lines about processes without a report.
pub const NO_REPORT: &str = "plimsoll: no report of ";

/// The command.
pub const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A directory for one test, removed on drop.
pub struct Scene {
    pub directory: PathBuf,
}

impl Scene {
    pub fn new(name: &str) -> Self {
        // Several tests of one process may have scenes of one name.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-run-test-{name}-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let scene = Self { directory };
        scene.open_to_all("");
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Lets every user read and execute a file, whatever the umask is: some programs run as another user.
    pub fn open_to_all(&self, name: &str) {
        let path = self.path(name);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Compiles a C program, or a C++ program if `compiler` is `c++`.
    pub fn compile(&self, compiler: &str, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let extension = if compiler == "c++" { "cc" } else { "c" };
        let file = self.path(&format!("{name}.{extension}"));
        std::fs::write(&file, source).unwrap();
        let program = self.path(name);
        let status = Command::new(compiler)
            .args(["-g", "-O1", "-fno-builtin", "-w", "-o"])
            .args([&program, &file])
            .args(options)
            .status()
            .expect("a C compiler is installed");
        assert!(status.success(), "{name} is not compiled");
        self.open_to_all(name);
        program
    }

    /// Compiles a C program.
    pub fn c(&self, name: &str, source: &str) -> PathBuf {
        self.compile("cc", name, source, &["-pthread"])
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns the command `plimsoll run` with options, a program and its arguments.
pub fn run(options: &[&str], program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(PLIMSOLL);
    command.arg("run").args(options).arg("--");
    command.arg(program.as_ref()).args(arguments);
    command.stdin(Stdio::null());
    command
}

/// Runs a program alone and by `plimsoll run --json`; asserts equal output and exit status. Returns
/// the report of each process.
pub fn same(program: impl AsRef<Path>, arguments: &[&str]) -> Vec<Value> {
    same_with(&[], program, arguments)
}

/// The same as [`same`], with options.
pub fn same_with(options: &[&str], program: impl AsRef<Path>, arguments: &[&str]) -> Vec<Value> {
    let alone = Command::new(program.as_ref())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let options = [options, &["--json"]].concat();
    let run = run(&options, &program, arguments).output().unwrap();
    let (errors, reports) = reports(&run);
    assert_eq!(run.status, alone.status, "{arguments:?}: {errors}");
    assert_eq!(run.stdout, alone.stdout, "{arguments:?}: {errors}");
    let lines = errors.lines();
    let own = lines.filter(|line| !line.starts_with(NO_REPORT));
    let errors: String = own.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(
        errors,
        String::from_utf8_lossy(&alone.stderr),
        "{arguments:?}"
    );
    reports
}

/// Splits standard error into the program's own output and the reports of processes.
pub fn reports(output: &Output) -> (String, Vec<Value>) {
    let mut errors = String::new();
    let mut reports = Vec::new();
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        match serde_json::from_str(line) {
            Ok(report @ Value::Object(_)) => reports.push(report),
            _ => {
                errors.push_str(line);
                errors.push('\n');
            }
        }
    }
    (errors, reports)
}

/// Returns what `plimsoll report` shows of a profile.
pub fn report(options: &[&str], profile: &Path) -> String {
    let output = Command::new(PLIMSOLL)
        .arg("report")
        .args(options)
        .arg(profile)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a number of a report.
pub fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {report}"))
}

/// Returns the only report.
pub fn only(reports: Vec<Value>) -> Value {
    assert_eq!(reports.len(), 1, "{reports:?}");
    reports.into_iter().next().unwrap()
}
