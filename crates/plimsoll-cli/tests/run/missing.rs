//! Processes that clear their environment, change their user or live in another namespace report; those that cannot are named
//! with the reason.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::scene::{NO_REPORT, Scene, number, reports, run};

/// A program that runs the function of the name in its argument. `leak` is one that others execute.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <sched.h>
    #include <signal.h>
    #include <spawn.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mount.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void keep(int count) { for (int i = 0; i < count; i++) memset(malloc(5000), 1, 5000); }
    static void done(pid_t child) {
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child) exit(9);
    }
    int main(int count, char **way) {
        char *leak[] = { way[0], "leak", 0 }, *none[] = { 0 }, *other[] = { "A=b", 0 }, *file[] = { way[2], 0 };
        char *self = way[0];
        pid_t child;
        #define IS(name) (!strcmp(way[1], name))
        if (IS("leak")) keep(1000);
        if (IS("none")) {
            if (!(child = fork())) { execve(self, leak, none); _exit(8); }
            done(child);
            if (!(child = fork())) { clearenv(); execv(self, leak); _exit(8); }
            done(child);
            if (!(child = vfork())) { execve(self, leak, other); _exit(8); }
            done(child);
            if (!(child = vfork())) { execle(self, self, "leak", (char *)0, none); _exit(8); }
            done(child);
            if (posix_spawn(&child, self, 0, 0, leak, none)) return 7;
            done(child);
            if (posix_spawnp(&child, self, 0, 0, leak, other)) return 7;
            done(child);
            // Executions that fail.
            if (!(child = vfork())) { execve("/nonexistent", leak, none); _exit(8); }
            done(child);
            if (!(child = fork())) { execve((char *)8, leak, other); execv(0, leak); _exit(8); }
            done(child);
            if (posix_spawn(&child, "/nonexistent", 0, 0, leak, none) != ENOENT) return 7;
        }
        if (IS("user")) {
            if (setgid(65534) || setuid(65534)) return 7;
            execv(self, leak);
            return 8;
        }
        if (IS("namespaces")) {
            for (int i = 0; i < 2; i++) {
                if (!(child = fork())) {
                    if (unshare(CLONE_NEWPID)) _exit(7);
                    if (!(child = fork())) { keep(100 * (i + 1)); if (i) execv(self, leak); _exit(0); }
                    done(child);
                    _exit(0);
                }
                done(child);
            }
        }
        if (IS("wait")) { keep(100 * (atoi(way[2]) + 1)); write(3, "x", 1); for (;;) pause(); }
        if (IS("namespaces-killed")) {
            pid_t children[2];
            int pipes[2];
            char byte;
            if (pipe(pipes)) return 7;
            for (int i = 0; i < 2; i++) {
                if (!(children[i] = fork())) {
                    if (unshare(CLONE_NEWPID)) _exit(7);
                    char number[16], *wait[] = { self, "wait", number, 0 };
                    sprintf(number, "%d", i);
                    if (!(child = fork())) { dup2(pipes[1], 3); execv(self, wait); _exit(8); }
                    // Ends once its child lives no more.
                    done(child);
                    _exit(0);
                }
                read(pipes[0], &byte, 1);
            }
            for (int i = 0; i < 2; i++) {
                char name[64];
                snprintf(name, sizeof name, "/proc/%d/task/%d/children", children[i], children[i]);
                FILE *file = fopen(name, "r");
                if (!file || fscanf(file, "%d", &child) != 1 || kill(child, SIGKILL)) return 7;
                done(children[i]);
            }
        }
        if (IS("mounts")) {
            if (!(child = fork())) {
                if (unshare(CLONE_NEWNS) || mount("none", "/", 0, MS_REC | MS_PRIVATE, 0)
                    || mount("t", "/dev/shm", "tmpfs", 0, 0) || mount("t", "/tmp", "tmpfs", 0, 0)) _exit(7);
                execl("/bin/true", "true", (char *)0);
                _exit(8);
            }
            done(child);
        }
        if (IS("kill")) { if (!(child = fork())) raise(SIGKILL); done(child); }
        if (IS("copy")) { if (!(child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))) _exit(0); done(child); }
        if (IS("files")) {
            if (!(child = fork())) { while (dup(2) >= 0); _exit(0); }
            done(child);
        }
        if (IS("filter")) {
            if (!(child = fork())) {
                // The executed program makes no such call, but a report needs them.
                struct sock_filter rules[] = {
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                };
                struct sock_fprog filter = { 4, rules };
                if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(7);
                execv(self, leak);
                _exit(8);
            }
            int status;
            // It must not be ended by the filter.
            if (waitpid(child, &status, 0) != child || status) return 9;
        }
        if (IS("size")) {
            struct rlimit limit = { 0, 0 };
            // As a shell does it.
            if (!(child = fork())) { syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, 0); _exit(0); }
            done(child);
        }
        if (IS("static")) {
            if (!(child = fork())) { execv(way[2], file); _exit(8); }
            done(child);
            if (!(child = vfork())) { execve(way[2], file, none); _exit(8); }
            done(child);
            if (posix_spawn(&child, way[2], 0, 0, file, none)) return 7;
            done(child);
        }
        return 0;
    }
"#;

fn is_root() -> bool {
    // SAFETY: the call has no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Runs the program with `--children`. Returns the lines about processes without a report, and the reports.
fn observed(program: &Path, way: &[&str]) -> (Vec<String>, Vec<Value>) {
    let mut command = run(&["--children", "--json"], program, way);
    let output = command.env_remove("XDG_CACHE_HOME").output().unwrap();
    let (errors, all) = reports(&output);
    assert_eq!(output.status.code(), Some(0), "{way:?}: {errors}");
    let lines = errors.lines().map(str::to_owned);
    (lines.collect(), all)
}

/// Returns the reports of `leak`.
fn leaks(all: &[Value]) -> impl Iterator<Item = &Value> {
    all.iter()
        .filter(|report| report["arguments"][1] == "leak" && report["ending"] != "exec")
}

#[test]
fn programs_that_are_executed_without_the_settings_report() {
    let scene = Scene::new("missing-none");
    let program = scene.c("program", PROGRAM);
    let (lines, all) = observed(&program, &["none"]);
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(leaks(&all).count(), 6, "{all:?}");
    for report in leaks(&all) {
        assert_eq!(number(report, "asked_bytes"), 5_000_000, "{report}");
    }
    assert!(
        all.iter().all(|report| report["ending"] != "exec"),
        "{all:?}"
    );
    // Alone, a program sees the environment that its parent chose.
    let output = run(&[], "/usr/bin/env", &["-i", "A=b", "env"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"A=b\n");
}

#[test]
fn a_program_of_another_user_reports_beside_its_predecessor() {
    if !is_root() {
        plimsoll_testkit::skip!("only root can become another user");
        return;
    }
    let scene = Scene::new("missing-user");
    let program = scene.c("program", PROGRAM);
    Command::new("chmod")
        .arg("755")
        .arg(&scene.directory)
        .status()
        .unwrap();
    let (lines, all) = observed(&program, &["user"]);
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!((leaks(&all).count(), all.len()), (1, 1), "{all:?}");
}

#[test]
fn processes_with_equal_numbers_in_two_namespaces_report_both() {
    if !is_root() {
        plimsoll_testkit::skip!("only root can make namespaces");
        return;
    }
    let scene = Scene::new("missing-namespaces");
    let program = scene.c("program", PROGRAM);
    let (lines, all) = observed(&program, &["namespaces"]);
    assert!(lines.is_empty(), "{lines:?}");
    let mut first: Vec<&Value> = all.iter().filter(|report| report["process"] == 1).collect();
    first.sort_by_key(|report| number(report, "asked_bytes"));
    let bytes: Vec<u64> = first
        .iter()
        .map(|report| number(report, "asked_bytes"))
        .collect();
    assert_eq!(bytes, [500_000, 5_000_000], "{all:?}");
    // The kernel may use the number of the first namespace again.
    assert!(
        first.iter().all(|report| number(report, "namespace") != 0),
        "{all:?}"
    );
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn killed_processes_with_equal_numbers_in_two_namespaces_leave_both_files() {
    if !is_root() {
        plimsoll_testkit::skip!("only root can make namespaces");
        return;
    }
    let scene = Scene::new("missing-namespaces-killed");
    let program = scene.c("program", PROGRAM);
    let mut command = run(
        &["--children", "--json", "--postmortem"],
        &program,
        &["namespaces-killed"],
    );
    let output = command.output().unwrap();
    let (errors, all) = reports(&output);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let mut killed: Vec<&Value> = all.iter().filter(|report| report["process"] == 1).collect();
    killed.sort_by_key(|report| number(report, "malloc_bytes"));
    let mallocs: Vec<u64> = killed
        .iter()
        .map(|report| number(report, "mallocs"))
        .collect();
    assert_eq!(mallocs, [100, 200], "{all:?}");
    assert_ne!(killed[0]["namespace"], killed[1]["namespace"], "{all:?}");
    assert!(
        killed.iter().all(|report| report["ending"] == "killed"),
        "{all:?}"
    );
}

#[test]
fn each_process_without_a_report_is_named_with_the_reason() {
    let scene = Scene::new("missing-reasons");
    let program = scene.c("program", PROGRAM);
    let source = "int main() { return 0; }";
    let linked = scene.compile("cc", "linked", source, &["-static"]);
    let linked = linked.to_str().unwrap();
    let mut cases = vec![
        (vec!["kill"], 1, "it was killed, or "),
        (vec!["copy"], 1, "by a system call of its parent"),
        (vec!["files"], 1, "no free file descriptor"),
        (vec!["size"], 1, "RLIMIT_FSIZE"),
        (vec!["filter"], 1, "a system call filter (seccomp)"),
        (vec!["static", linked], 3, "statically linked"),
    ];
    if is_root() {
        cases.push((
            vec!["mounts"],
            1,
            "another root directory or mount namespace",
        ));
    } else {
        plimsoll_testkit::skip!("only root can enter a mount namespace");
    }
    for (way, count, reason) in cases {
        let (lines, all) = observed(&program, &way);
        assert_eq!(lines.len(), 1, "{way:?}: {lines:?}");
        let line = lines[0]
            .strip_prefix(NO_REPORT)
            .expect("the line of the reason");
        let plural = if count == 1 { "" } else { "es" };
        assert!(
            line.starts_with(&format!("{count} process{plural}: ")),
            "{line}"
        );
        assert!(line.contains(reason), "{way:?}: {line}");
        assert!(!all.is_empty(), "{way:?}");
    }
}

#[test]
fn an_option_that_selects_no_process_is_named() {
    for option in [["--only", "nothing"], ["--min-peak", "100g"]] {
        let output = run(&option, "/bin/true", &[]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let option = option.join(" ");
        assert_eq!(
            text,
            format!("plimsoll: {option} selects none of 1 process: true\n")
        );
    }
}
