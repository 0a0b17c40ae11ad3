//! Tests that need a process of their own: the settings hold from the first allocation on.

use std::process::Command;

/// Runs `test` in a process with the environment variable `PLIMSOLL` set to `settings`, by calling
/// the test of the name `name` there.
pub fn run(name: &str, settings: &str, test: fn()) {
    const MARK: &str = "PLIMSOLL_TEST_CHILD";
    if std::env::var_os(MARK).is_some() {
        return test();
    }
    let output = Command::new(std::env::current_exe().expect("the test has a path"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env("PLIMSOLL", settings)
        .output()
        .expect("the test can be run");
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "with {settings}: {}\n{said}",
        output.status
    );
    assert!(
        said.contains("1 passed"),
        "no test of that name was run\n{said}"
    );
    eprint!("{said}");
}
