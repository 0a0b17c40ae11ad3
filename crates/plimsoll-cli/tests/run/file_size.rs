//! The limit on the size of files: it ends no program because of what Plimsoll writes.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::scene::{PLIMSOLL, Scene, number, reports, run};

/// Runs a command whose files may have `limit` bytes.
fn limited(mut command: Command, limit: u64) -> Output {
    let limit = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: the closure makes one system call.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    command.stdin(Stdio::null()).output().unwrap()
}

/// A program that keeps some memory, and ends with status 3.
const KEEPS: &str = "#include <stdlib.h>
    int main() { for (int i = 0; i < 3000; i++) *(char *)malloc(3000) = 1; return 3; }";

/// The library must be there before: its file is longer than the limits.
fn place_library() {
    let output = run(&["-q"], "/bin/true", &[]).output().unwrap();
    assert!(output.status.success());
}

#[test]
fn no_limit_on_files_changes_the_status() {
    let scene = Scene::new("file-size");
    let program = scene.c("keeps", KEEPS);
    place_library();
    let out = scene.path("out");
    let out = out.to_str().unwrap();
    for options in [
        &[][..],
        &["--out", out],
        &["--postmortem"],
        &["--children", "--http", "127.0.0.1:0"],
    ] {
        for limit in [0, 10] {
            let output = limited(run(options, &program, &[]), limit);
            let (errors, reports) = reports(&output);
            assert_eq!(output.status.code(), Some(3), "{options:?}: {errors}");
            assert!(reports.is_empty());
            let expected = "the program ended with status 3 without a report: its limit on the size of files (";
            assert!(errors.contains(expected), "{options:?}: {errors}");
        }
    }
    let errors = limited(run(&["--postmortem"], &program, &[]), 0).stderr;
    let errors = String::from_utf8_lossy(&errors);
    assert!(
        errors.contains("it would exceed the limit on file sizes"),
        "{errors}"
    );
}

#[test]
fn a_report_without_its_profiles_is_named() {
    let scene = Scene::new("file-size-cut");
    let program = scene.c("keeps", KEEPS);
    place_library();
    let output = limited(run(&["--json"], &program, &[]), 4 << 10);
    let (errors, reports) = reports(&output);
    assert_eq!((output.status.code(), errors.as_str()), (Some(3), ""));
    assert_eq!(reports.len(), 1);
    assert!(number(&reports[0], "mallocs") >= 3000);
    assert_eq!(reports[0]["profiles_cut"], true);
    let output = limited(run(&[], &program, &[]), 4 << 10);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("lost       the profiles: the file of the report"),
        "{errors}"
    );
    let whole = run(&["--json"], &program, &[]).output().unwrap();
    assert_eq!(self::reports(&whole).1[0]["profiles_cut"], false);
}

/// The shell is limited after its start, and the programs that it executes from theirs on.
#[test]
fn programs_of_a_limited_shell_end_as_alone() {
    place_library();
    let script = "ulimit -f 0; /bin/true; echo $?; (exit 5); echo $?; exit 4";
    let output = run(&["--children"], "/bin/sh", &["-c", script])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert_eq!(output.stdout, b"0\n5\n", "{errors}");
    assert!(
        errors.contains("plimsoll: no report of ") && errors.contains("RLIMIT_FSIZE"),
        "{errors}"
    );
}

#[test]
fn the_command_reports_an_output_that_is_too_large() {
    let scene = Scene::new("file-size-out");
    let program = scene.c("keeps", KEEPS);
    let out = scene.path("out");
    let done = run(&["-q", "--out", out.to_str().unwrap()], &program, &[])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(3));
    let mut command = Command::new(PLIMSOLL);
    command
        .args(["report", "--html"])
        .arg(scene.path("page.html"));
    command.arg(out.join("heap.pb.gz"));
    let output = limited(command, 100);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("File too large"), "{errors}");
}
