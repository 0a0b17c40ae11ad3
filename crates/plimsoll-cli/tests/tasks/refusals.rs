//! What cannot be read is refused with the reason.

use std::fs;
use std::process::{Command, Stdio};

use crate::command::{Directory, file_of_command, plimsoll};

fn refusal(pid: u32) -> String {
    let output = plimsoll(&["tasks", &pid.to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// Waits until a new program reads from its input or sleeps. Until then it is a copy of this process, or not mapped as a whole.
fn wait_until_blocked(pid: u32) {
    let sleeps = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep];
    let is_one = |position: &str| {
        let number = position.split(' ').next();
        let number = number.and_then(|number| number.parse::<i64>().ok());
        position.starts_with("0 0x0 ") || number.is_some_and(|number| sleeps.contains(&number))
    };
    let position = format!("/proc/{pid}/syscall");
    while !is_one(&fs::read_to_string(&position).unwrap()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_program_without_debug_information_is_refused() {
    let mut sleeps = Command::new("/bin/sleep").arg("100").spawn().unwrap();
    wait_until_blocked(sleeps.id());
    let text = refusal(sleeps.id());
    assert!(text.contains("has no debug information"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    sleeps.kill().unwrap();
    sleeps.wait().unwrap();
}

/// Compiles a program that waits for its input, and returns why it is refused.
fn refusal_of(compiler: &str, file: &str, source: &[u8], options: &[&str]) -> String {
    let directory = Directory::new(file);
    let source = directory.file(file, source);
    let program = directory.path("waits");
    let mut compiler = Command::new(compiler);
    let built = compiler
        .args(options)
        .args(["-o", &program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    let mut waits = Command::new(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_blocked(waits.id());
    let text = refusal(waits.id());
    waits.kill().unwrap();
    waits.wait().unwrap();
    text
}

#[test]
fn a_program_without_tokio_is_refused() {
    let source = b"struct part { int x; } part; int main(void) { return getchar() + part.x; }";
    let text = refusal_of("cc", "waits.c", source, &["-g", "-w"]);
    assert!(text.contains("does not contain tokio"), "{text}");
}

#[test]
fn a_program_with_lines_only_is_refused() {
    let source = b"fn main() { std::io::stdin().lines().for_each(drop); }";
    let text = refusal_of(
        "rustc",
        "waits.rs",
        source,
        &["-Cdebuginfo=line-tables-only"],
    );
    assert!(
        text.contains("has no types; build it with debug = \"full\""),
        "{text}"
    );
}

/// Opening the pipe would wait for its writer.
#[test]
fn a_pipe_in_place_of_the_debug_file_is_left_alone() {
    let directory = Directory::new("pipe-for-tasks");
    let source = directory.file("waits.c", b"int main(void) { return getchar(); }");
    let (program, link) = (directory.path("waits"), directory.path("waits.debug"));
    let succeed = |command: &mut Command| assert!(command.status().unwrap().success());
    succeed(Command::new("cc").args(["-w", "-o", &program, &source]));
    fs::write(&link, "not yet a pipe").unwrap();
    let added = format!("--add-gnu-debuglink={link}");
    succeed(Command::new("objcopy").args([&added, &program]));
    fs::remove_file(&link).unwrap();
    succeed(Command::new("mkfifo").arg(&link));
    let mut waits = Command::new(&program)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_blocked(waits.id());
    let output = Command::new("timeout")
        .arg("60")
        .arg(file_of_command())
        .args(["tasks", &waits.id().to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("has no debug information"), "{output:?}");
    waits.kill().unwrap();
    waits.wait().unwrap();
}
