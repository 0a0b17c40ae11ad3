//! What cannot be read is refused with the reason.

use std::process::{Command, Stdio};

use crate::command::plimsoll;
use crate::program::{Running, build};

fn refusal(pid: u32) -> String {
    let output = plimsoll(&["tasks", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_program_without_debug_information_is_refused() {
    let mut sleeps = Command::new("/bin/sleep").arg("100").spawn().unwrap();
    // Until then, it is a copy of this process.
    while std::fs::read_link(format!("/proc/{}/exe", sleeps.id())).unwrap()
        == std::env::current_exe().unwrap()
    {
        std::thread::yield_now();
    }
    let text = refusal(sleeps.id());
    assert!(text.contains("has no debug information"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
}

#[test]
fn a_program_without_tokio_is_refused() {
    let directory = crate::command::Directory::new("without-tokio");
    let source = directory.file(
        "waits.c",
        b"struct part { int x; } part; int main(void) { return getchar() + part.x; }",
    );
    let program = directory.path("waits");
    let built = Command::new("cc")
        .args(["-g", "-w", "-o", &program, &source])
        .status();
    assert!(built.unwrap().success());
    let mut waits = Command::new(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let exe = format!("/proc/{}/exe", waits.id());
    while std::fs::read_link(&exe).unwrap() != std::fs::canonicalize(&program).unwrap() {
        std::thread::yield_now();
    }
    let text = refusal(waits.id());
    assert!(text.contains("does not contain tokio"), "{text}");
    waits.kill().unwrap();
    waits.wait().unwrap();
}

#[test]
fn a_program_with_lines_only_is_refused() {
    let settings = ["profile.dev.debug='line-tables-only'"];
    let program = build("tasks-lines", &settings);
    let running = Running::start(&program, 0);
    let text = refusal(running.child.id());
    assert!(
        text.contains("has no types; build it with debug = \"full\""),
        "{text}"
    );
}
