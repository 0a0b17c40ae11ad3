//! A process that cannot be read is refused in one line with the reason, before anything is printed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::command::file_of_command;
use crate::target::*;

/// Returns the reason of a refusal.
fn reason(output: &Output, pid: i32) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let line = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(line.lines().count(), 1, "{line}");
    let start = format!("plimsoll: process {pid}: ");
    let reason = line
        .strip_prefix(&start)
        .unwrap_or_else(|| panic!("{line}"));
    reason.trim_end().to_owned()
}

fn is_root() -> bool {
    // SAFETY: the call has no effects.
    unsafe { libc::geteuid() == 0 }
}

/// Runs the command as a user without rights.
fn as_another_user(arguments: &[&str]) -> Output {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let number = COPIES.fetch_add(1, Relaxed);
    // The command may be in a directory of root's.
    let copy = format!("plimsoll-attach-{}-{number}", std::process::id());
    let copy = std::env::temp_dir().join(copy);
    plimsoll_testkit::child::copy_program(file_of_command().as_ref(), &copy);
    let mut command = Command::new(&copy);
    let output = command.uid(65534).gid(65534).args(arguments).output();
    let _ = std::fs::remove_file(&copy);
    output.expect("it can be run")
}

#[test]
fn a_process_that_does_not_exist_is_refused() {
    let pid = 4_194_304;
    assert_eq!(reason(&attach(pid, &[]), pid), "no such process");
}

#[test]
fn invalid_numbers_are_invalid_arguments() {
    for pid in ["0", "-1", "x", "99999999999"] {
        let output = Command::new(file_of_command())
            .args(["attach", pid])
            .output()
            .expect("it can be run");
        assert_eq!(output.status.code(), Some(2), "{pid}");
    }
}

#[test]
fn the_command_itself_is_refused() {
    let output = Command::new("sh")
        .args(["-c", "echo $$; exec \"$0\" attach $$"])
        .arg(file_of_command())
        .output()
        .expect("a shell");
    let pid = String::from_utf8_lossy(&output.stdout).trim().parse();
    let without_number = Output {
        stdout: Vec::new(),
        ..output
    };
    let reason = reason(&without_number, pid.expect("a number"));
    assert_eq!(reason, "that is this command itself");
}

#[test]
fn a_thread_of_the_kernel_is_refused() {
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name != "kthreadd\n" {
        plimsoll_testkit::skip!("process 2 is not of the kernel");
        return;
    }
    let reason = reason(&attach(2, &[]), 2);
    assert!(
        reason.starts_with("kthreadd is a thread of the kernel"),
        "{reason}"
    );
}

#[test]
fn the_first_process_is_read_or_refused() {
    let output = attach(1, &[]);
    if output.status.code() != Some(0) {
        reason(&output, 1);
    }
}

#[test]
fn a_zombie_is_refused() {
    let mut target = Target::start(Command::new("sh").args(["-c", "exit"]));
    wait_for("the end", || (target.state() == 'Z').then_some(()));
    let reason = reason(&attach(target.pid(), &[]), target.pid());
    assert!(
        reason.starts_with("it has ended and is a zombie"),
        "{reason}"
    );
    let _ = target.child.wait();
}

#[test]
fn a_thread_is_refused_with_the_number_of_its_process() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["read"]);
    let view = target.wait_until_blocked(&[("read", "read")]);
    let tid = thread(&view, "read")["tid"].as_i64().unwrap() as i32;
    let reason = reason(&attach(tid, &[]), tid);
    let pid = target.pid();
    assert_eq!(
        reason,
        format!("that is a thread of process {pid}: attach to {pid}")
    );
}

#[test]
fn a_process_of_another_user_is_refused() {
    let Some(program) = known() else { return };
    if !is_root() {
        plimsoll_testkit::skip!("only root can run the command as another user");
        return;
    }
    let target = Target::known(program, &[]);
    let pid = target.pid();
    let output = as_another_user(&["attach", &pid.to_string()]);
    let found = reason(&output, pid);
    let expected =
        "it belongs to user 0, this command runs as user 65534; run it as that user or as root";
    assert_eq!(found, expected);
}

#[test]
fn a_protected_process_of_the_same_user_is_refused() {
    if !is_root() {
        plimsoll_testkit::skip!("only root can change the user of a process");
        return;
    }
    let Some(program) = known() else { return };
    let target = Target::known(program, &["protected"]);
    let pid = target.pid();
    let output = as_another_user(&["attach", &pid.to_string()]);
    let reason = reason(&output, pid);
    assert!(reason.starts_with("it is protected, because"), "{reason}");
    assert!(reason.ends_with("run as root"), "{reason}");
}

#[test]
fn a_mount_of_another_pid_namespace_is_refused() {
    let output = Command::new("unshare")
        .args(["-pf"])
        .arg(file_of_command())
        .args(["attach", "1"])
        .output();
    let Ok(output) = output else {
        plimsoll_testkit::skip!("unshare is not installed");
        return;
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.starts_with("unshare") {
        plimsoll_testkit::skip!("this user cannot create a PID namespace");
        return;
    }
    let reason = reason(&output, 1);
    assert!(
        reason.starts_with("/proc is of another PID namespace"),
        "{reason}"
    );
}
