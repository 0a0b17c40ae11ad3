//! Runs each top-level module of a test binary in a separate process.
//!
//! Tests of one module may share the state of a process, such as rates and profiles. Tests of
//! different modules may not. A binary for each module would isolate them as well, at the cost of
//! linking each.
//!
//! [`process_per_module!`](crate::process_per_module) in the root of a test binary calls
//! [`run_if_first`] before `main`. It lists the selected tests, runs the binary again for each
//! module, names the modules that failed, and exits with status 101 if any did. In the processes of
//! modules it does nothing. Neither does it if `--exact` names a single test, or if no test is
//! selected.
//!
//! Three modules run at a time, since many tests wait. Each module's output is printed when it ends.
//! With `--nocapture`, modules run one after the other and print directly.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::io::Write as _;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::child::variable;

/// The environment variable that marks the processes of modules.
const MARK: &CStr = c"PLIMSOLL_TEST_MODULE";

/// The number of modules that run at a time, if there are several processors.
const AT_ONCE: usize = 3;

/// Options of the test harness that take a value.
const WITH_VALUE: [&str; 7] = [
    "--test-threads",
    "--skip",
    "--format",
    "--color",
    "--logfile",
    "--shuffle-seed",
    "-Z",
];

/// Runs the modules of this test binary, if this is its first process.
#[macro_export]
macro_rules! process_per_module {
    () => {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        #[used]
        #[unsafe(link_section = ".init_array")]
        static RUN_MODULES: $crate::groups::Initializer = $crate::groups::run_if_first;
    };
}

/// A function that the C library calls before `main`, with the arguments of the program.
pub type Initializer = unsafe extern "C" fn(c_int, *const *const c_char);

/// Implements [`process_per_module!`](crate::process_per_module). Does not return in the first
/// process. In all others it does not allocate, since tests count allocations.
///
/// # Safety
/// Only the C library may call this, with the arguments of the program.
pub unsafe extern "C" fn run_if_first(count: c_int, arguments: *const *const c_char) {
    // SAFETY: `arguments` are `count` C strings that are never freed, by this function's contract.
    let given = |at: c_int| unsafe { CStr::from_ptr(*arguments.add(at as usize)) };
    let is_alone =
        (1..count).any(|at| [c"--exact", c"--list", c"--help", c"-h"].contains(&given(at)));
    // SAFETY: no other thread runs yet, so none changes the environment.
    let is_set = |name: &CStr| unsafe { !libc::getenv(name.as_ptr()).is_null() };
    if is_alone || is_set(MARK) || is_set(crate::child::MARK) {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let modules = modules(&arguments);
    if modules.is_empty() {
        return;
    }
    let failed = failed(modules, &options(&arguments));
    if failed.is_empty() {
        std::process::exit(0);
    }
    eprintln!("\nfailed modules: {}", failed.join(", "));
    std::process::exit(101);
}

/// Runs the modules. Returns the names of those that fail.
fn failed(modules: BTreeMap<String, Vec<String>>, options: &[String]) -> Vec<String> {
    let is_direct = modules.len() == 1
        || options
            .iter()
            .any(|option| ["--nocapture", "--no-capture"].contains(&option.as_str()));
    let at_once = match thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 && !is_direct => AT_ONCE,
        _ => 1,
    };
    let failed = Mutex::new(Vec::new());
    let remaining = Mutex::new(modules.into_iter());
    let next = || lock(&remaining).next();
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some((module, tests)) = next() {
                    let mut command = again();
                    command
                        .args(options)
                        .arg("--exact")
                        .args(tests)
                        .env(variable(MARK), &module);
                    let status = match is_direct {
                        true => run_directly(&module, &mut command),
                        false => run_captured(&module, &mut command),
                    };
                    if !status.success() {
                        lock(&failed).push(format!("{module} ({status})"));
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_directly(module: &str, command: &mut Command) -> ExitStatus {
    println!("\nmodule {module}");
    command.status().expect("the test binary can be run")
}

/// Runs a module and then prints its whole output. Names the module on standard error when it
/// starts, so that the output shows which module hangs.
fn run_captured(module: &str, command: &mut Command) -> ExitStatus {
    eprintln!("module {module} starts");
    let output = command.output().expect("the test binary can be run");
    let (mut out, mut errors) = (std::io::stdout().lock(), std::io::stderr().lock());
    let printed = writeln!(out, "\nmodule {module}")
        .and_then(|()| out.write_all(&output.stdout))
        .and_then(|()| out.flush())
        .and_then(|()| errors.write_all(&output.stderr));
    printed.expect("the output can be written");
    output.status
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn again() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    if let Some(file) = crate::skips::file() {
        command.env(crate::skips::FILE, file);
    }
    command
}

/// Returns the selected tests by their top-level modules.
fn modules(arguments: &[String]) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for test in crate::child::list(arguments) {
        let module = test.split("::").next().unwrap_or_default().to_owned();
        modules.entry(module).or_default().push(test);
    }
    modules
}

/// Returns the options to pass on to the processes of modules: all but filters and `--skip`.
fn options(arguments: &[String]) -> Vec<String> {
    let mut options = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument.as_str()) {
            let value = arguments.next().cloned();
            if argument != "--skip" {
                options.push(argument.clone());
                options.extend(value);
            }
        } else if argument.starts_with('-') && !argument.starts_with("--skip=") {
            options.push(argument.clone());
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_replaced_and_options_kept() {
        let of = |line: &str| {
            let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            options(&arguments).join(" ")
        };
        assert_eq!(of("peak heap"), "");
        assert_eq!(
            of("--nocapture peak --test-threads 2"),
            "--nocapture --test-threads 2"
        );
        assert_eq!(
            of("--skip a --skip=b --ignored --color always x"),
            "--ignored --color always"
        );
    }
}
