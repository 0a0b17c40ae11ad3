//! Programs of every kind are read.

use std::path::Path;
use std::process::Command;

use plimsoll_testkit::skip;

use crate::command::Directory;
use crate::target::*;

/// Checks that blocked threads of the program have their functions.
fn has_functions(program: &Path, calls: &[(&str, &str, &str)]) {
    let threads: Vec<&str> = calls.iter().map(|known| known.0).collect();
    let target = Target::known(program, &threads);
    let states: Vec<_> = calls.iter().map(|&(name, call, _)| (name, call)).collect();
    let view = target.wait_until_blocked(&states);
    for &(name, _, function) in calls {
        let functions = functions(thread(&view, name));
        assert!(functions.contains(&function), "{name}: {functions:?}");
    }
    assert!(view["memory"]["is_exact"] == true, "{view}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_static_program_of_musl_has_names() {
    let options = [
        "-O2",
        "-static",
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
    ];
    let Some(program) = build("musl", "musl-gcc", &options) else {
        return;
    };
    has_functions(
        &program,
        &[
            ("futex", "futex", "wait_in_futex"),
            ("nanosleep", "nanosleep", "wait_in_nanosleep"),
            ("epoll", "epoll_pwait", "wait_in_epoll"),
            ("read", "read", "wait_in_read"),
            ("condition", "futex", "wait_for_condition"),
            ("mutex", "futex", "wait_for_mutex"),
        ],
    );
    let _ = std::fs::remove_file(program);
}

#[test]
fn a_static_program_of_glibc_has_names() {
    let Some(program) = build("static", "gcc", &["-O2", "-static", "-pthread"]) else {
        return;
    };
    has_functions(&program, &crate::threads::KNOWN[..5]);
    let _ = std::fs::remove_file(program);
}

/// The threads of the Rust program, their system calls, and their functions.
const RUST: [(&str, &str, &str); 10] = [
    ("mutex", "futex", "wait_for_mutex"),
    ("condition", "futex", "wait_for_condition"),
    ("rwlock", "futex", "wait_to_read"),
    ("receive", "futex", "wait_to_receive"),
    ("barrier", "futex", "wait_at_barrier"),
    ("accept", "accept4", "wait_to_accept"),
    ("packet", "recvfrom", "wait_for_packet"),
    ("sleep", "clock_nanosleep", "wait_in_sleep"),
    ("park", "futex", "wait_in_park"),
    ("rust", "read", "wait_for_end"),
];

/// Checks that all threads of the Rust program, compiled with these options, have whole stacks.
fn has_whole_stacks_of_rust(options: &[&str]) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attach/known.rs");
    let directory = Directory::new("attach-rust");
    let program = directory.path("rust");
    let built = Command::new("rustc")
        .args(["--edition=2021", "-g", "-o", &program, source])
        .args(options)
        .output()
        .expect("a compiler of Rust");
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    let mut target = Target::start(&mut Command::new(&program));
    assert_eq!(target.line(), "ready\n");
    let states: Vec<_> = RUST.iter().map(|&(name, call, _)| (name, call)).collect();
    let view = target.wait_until_blocked(&states);
    for (name, _, function) in RUST {
        let thread = thread(&view, name);
        let functions = functions(thread);
        let of_program = |found: &&&str| found.ends_with(&format!("::{function}"));
        assert!(
            functions.iter().any(|found| of_program(&found)),
            "{options:?}, {name}: {functions:?}"
        );
        let is_complete = &thread["stack"]["is_complete"];
        assert_eq!(is_complete, true, "{options:?}, {name}: {functions:?}");
    }
}

#[test]
fn threads_of_rust_have_whole_stacks() {
    has_whole_stacks_of_rust(&[]);
    has_whole_stacks_of_rust(&["-O"]);
    has_whole_stacks_of_rust(&["-O", "-Cforce-frame-pointers=yes"]);
    has_whole_stacks_of_rust(&["-Copt-level=s", "-Cpanic=abort"]);
    // The linkers lay out segments in different ways.
    #[cfg(target_arch = "x86_64")]
    has_whole_stacks_of_rust(&["-O", "-Clinker-features=-lld"]);
    has_whole_stacks_of_rust(&["-O", "-Clink-arg=-Wl,-z,noseparate-code"]);
}

#[test]
fn a_stripped_program_has_modules_and_offsets() {
    let Some(program) = build("stripped", "gcc", &["-O2", "-s", "-pthread"]) else {
        return;
    };
    let target = Target::known(&program, &["futex", "read"]);
    let view = target.wait_until_blocked(&[("futex", "futex"), ("read", "read")]);
    let functions = functions(thread(&view, "futex"));
    let name = program.file_name().unwrap().to_str().unwrap();
    assert_eq!(functions[0], "syscall", "of the C library");
    assert!(
        functions[1].starts_with(&format!("{name}+0x")),
        "{functions:?}"
    );
    let _ = std::fs::remove_file(&program);
    // The file is deleted now. The kernel's link leads to it.
    let again = json(target.pid());
    let functions = crate::target::functions(thread(&again, "futex"));
    assert_eq!(functions[0], "syscall");
    assert!(functions[1].contains("+0x"), "{functions:?}");
}

#[test]
fn redis_has_its_threads() {
    let directory = Directory::new("attach-redis");
    let socket = directory.path("socket");
    let started = Command::new("redis-server").arg("--version").output();
    if started.is_err() {
        skip!("redis-server is not installed");
        return;
    }
    let target = Target::start(Command::new("redis-server").args([
        "--port",
        "0",
        "--unixsocket",
        &socket,
        "--save",
        "",
    ]));
    let view = wait_for("the server", || {
        let view = json(target.pid());
        let first = &view["threads"][0];
        let is_up = Path::new(&socket).exists() && first["system_call"] == "epoll_wait";
        // It starts its other threads last.
        (is_up && view["threads"].as_array()?.len() > 1).then_some(view)
    });
    let functions = functions(&view["threads"][0]);
    assert!(functions.contains(&"main") || functions.iter().any(|name| name.contains("+0x")));
    assert_eq!(view["threads"][0]["stack"]["is_complete"], true);
    assert_eq!(view["plimsoll"], serde_json::Value::Null);
}

#[test]
fn a_process_in_an_inner_pid_namespace_is_read_from_the_outer_one() {
    let Some(program) = known() else { return };
    let mut outer = Target::start(
        Command::new("unshare")
            .args(["-pf", "--mount-proc"])
            .arg(program)
            .args(["mutex", "first", "second"]),
    );
    if outer.line() != "ready\n" {
        skip!("this user cannot create a PID namespace");
        return;
    }
    let children = format!("/proc/{0}/task/{0}/children", outer.pid());
    let children = std::fs::read_to_string(children).expect("it exists");
    let pid: i32 = children.trim().parse().expect("one child");
    let view = wait_for("the deadlock", || {
        let view = json(pid);
        (view["deadlocks"].as_array()?.len() == 1).then_some(view)
    });
    let waiter = thread(&view, "mutex");
    // Inside, the process has another number, which is the one in the mutex.
    assert_eq!(waiter["futex"]["owner"], pid);
    assert_eq!(view["threads"][0]["own_tid"], 1);
    assert!(functions(waiter).contains(&"wait_for_mutex"));
    let text = text(pid, &["--verbose"]);
    assert!(text.contains("inner PID namespace"), "{text}");
    // SAFETY: the process is a descendant that runs.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

#[test]
fn a_process_is_read_within_its_own_pid_namespace() {
    let Some(program) = known() else { return };
    let script = "sleep 1000 | \"$0\" mutex & child=$!; \
        while ! \"$1\" attach $child --json | grep -q '\"kind\": \"mutex\"'; do :; done; \
        \"$1\" attach $child --json; kill -KILL $child";
    let output = Command::new("unshare")
        .args(["-pf", "--mount-proc", "timeout", "120", "sh", "-c", script])
        .arg(program)
        .arg(crate::command::file_of_command())
        .stdin(std::process::Stdio::piped())
        .output();
    let Ok(output) = output else {
        skip!("unshare is not installed");
        return;
    };
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.starts_with("unshare") {
        skip!("this user cannot create a PID namespace");
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let text = text.strip_prefix("ready\n").unwrap_or(&text);
    let view: serde_json::Value =
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}{complaint}"));
    assert_eq!(thread(&view, "mutex")["futex"]["owner"], view["pid"]);
    assert!(functions(thread(&view, "mutex")).contains(&"wait_for_mutex"));
}

/// As `redis-server` is a link to `redis-check-rdb`.
#[test]
fn a_program_has_the_name_by_which_it_was_started() {
    let Some(program) = known() else { return };
    let directory = Directory::new("attach-link");
    let link = directory.path("other-name");
    std::os::unix::fs::symlink(program, &link).expect("a link");
    let target = Target::known(Path::new(&link), &["read"]);
    let view = target.wait_until_blocked(&[("read", "read")]);
    assert_eq!(view["program"], *link);
    let owners = view["memory"]["owners"].as_array().expect("a list");
    let has = |name: &str| owners.iter().any(|owner| owner["name"] == name);
    assert!(has(&format!("file {link}")), "{owners:?}");
    assert!(!has(&format!("file {}", program.display())), "{owners:?}");
}
