//! Runs tests in separate processes, in which the settings apply from the first allocation on.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The environment variable that marks these processes.
pub(crate) const MARK: &CStr = c"PLIMSOLL_TEST_CHILD";

/// Copies a program that will be executed.
///
/// Another process writes the copy. If this one wrote it, a child that another test starts meanwhile
/// could inherit the open file, and the execution would fail with `ETXTBSY`. Every user may execute it, whatever the umask
/// is.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "cp {from:?} {to:?}"
    );
    std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).expect("its mode can be set");
}

/// Runs `test` in a process with the environment variable `PLIMSOLL` set to `settings`, by running
/// the calling test there. `name` is the end of its name: the last module and the function, or the
/// function.
pub fn run(name: &str, settings: &str, test: fn()) {
    stderr_of(name, settings, test);
}

/// Runs `test` as [`run`] does. Returns the process's standard error; `None` in the process itself.
pub fn stderr_of(name: &str, settings: impl AsRef<OsStr>, test: fn()) -> Option<String> {
    let settings = settings.as_ref();
    if is_child() {
        test();
        return None;
    }
    let output = command(name, settings)
        .output()
        .expect("the test can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    let printed = format!("{}{errors}", String::from_utf8_lossy(&output.stdout));
    assert!(
        output.status.success(),
        "with {settings:?}: {}\n{printed}",
        output.status
    );
    assert!(
        printed.contains("1 passed"),
        "no test of that name was run\n{printed}"
    );
    eprint!("{printed}");
    Some(errors.into_owned())
}

/// Kills the process after a minute. For children of forks, and for a thread that may wait for itself: they may have blocked
/// every signal that a program can block.
pub fn kill_after_a_minute() -> Deadline {
    // SAFETY: all zeros are a valid value; the pointers lead to locals. The child of a fork may make these calls.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = std::mem::zeroed();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) != 0 {
            libc::abort();
        }
        let deadline = Deadline(timer);
        deadline.renew();
        deadline
    }
}

/// The time at which [`kill_after_a_minute`] kills the process.
#[derive(Clone, Copy)]
pub struct Deadline(libc::timer_t);

// SAFETY: the threads of a process share its timers.
unsafe impl Send for Deadline {}
// SAFETY: as above.
unsafe impl Sync for Deadline {}

impl Deadline {
    /// Gives the process another minute. Signal handlers may call it.
    pub fn renew(self) {
        // SAFETY: all zeros are a valid value; the timer is never deleted.
        unsafe {
            let mut time: libc::itimerspec = std::mem::zeroed();
            time.it_value.tv_sec = 60;
            if libc::timer_settime(self.0, 0, &raw const time, std::ptr::null_mut()) != 0 {
                libc::abort();
            }
        }
    }
}

/// Returns whether this is the process of a single test, which [`command`] runs.
pub fn is_child() -> bool {
    std::env::var_os(variable(MARK)).is_some()
}

/// Returns the command that runs the test `name` of this binary in another process, as [`run`] does.
pub fn command(name: &str, settings: impl AsRef<OsStr>) -> Command {
    let program = std::env::current_exe().expect("the test has a path");
    command_of(&program, name, settings)
}

/// Returns the command that runs the test `name` of a copy of this binary.
pub fn command_of(program: &Path, name: &str, settings: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if let Some(file) = crate::skips::file() {
        command.env(crate::skips::FILE, file);
    }
    // SAFETY: `signal` is async-signal-safe, so it may run between fork and exec. The calls are
    // needed because a shell makes its background jobs ignore these signals.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    };
    command
        .args([
            &*full_name(name),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(variable(MARK), "1")
        .env("PLIMSOLL", settings);
    command
}

/// Returns the full name of the test whose name ends with `name`: the calling test's, or that of
/// the only such test.
///
/// # Panics
/// If no test has such a name, or several have.
pub fn full_name(name: &str) -> String {
    let is_named = |full: &str| {
        let module = full.strip_suffix(name);
        module.is_some_and(|module| module.is_empty() || module.ends_with("::"))
    };
    // The harness names the thread of a test after it, unless it runs on the main thread.
    let thread = std::thread::current();
    if let Some(full) = thread.name().filter(|full| is_named(full)) {
        return full.to_owned();
    }
    let mut tests = list(&[]);
    tests.retain(|test| is_named(test));
    assert_eq!(tests.len(), 1, "tests named {name}: {tests:?}");
    tests.remove(0)
}

/// Waits for the end of a child of this process, also if signals of other tests interrupt the call. Returns its status,
/// as `waitpid` reports it. Neither allocates nor locks.
pub fn wait(child: i32) -> i32 {
    let mut status = -1;
    // SAFETY: the status is writable.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
    status
}

/// Lists the tests of this binary that the arguments select.
pub(crate) fn list(arguments: &[String]) -> Vec<String> {
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args(arguments)
        .args(["--list", "--format", "terse"])
        .output()
        .expect("the test binary can be run");
    assert!(output.status.success(), "{output:?}");
    let listed = String::from_utf8_lossy(&output.stdout);
    let tests = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    tests.map(str::to_owned).collect()
}

/// Converts the name of an environment variable.
pub(crate) fn variable(name: &'static CStr) -> &'static OsStr {
    OsStr::from_bytes(name.to_bytes())
}
