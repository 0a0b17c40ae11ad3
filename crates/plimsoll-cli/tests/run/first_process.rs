//! `plimsoll run` as the first process of a PID namespace, as in a container.

use std::process::{Command, Output};

use crate::scene::{PLIMSOLL, Scene};

/// Runs a script by `plimsoll run` in a new PID namespace. Returns `None` if the system permits none.
fn run(script: &str) -> Option<Output> {
    run_with(&[], script)
}

fn run_with(options: &[&str], script: &str) -> Option<Output> {
    const NAMESPACE: [&str; 5] = [
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
    ];
    let unshare = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(NAMESPACE).args(arguments).output()
    };
    if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
        plimsoll_testkit::skip!("PID namespaces are not permitted");
        return None;
    }
    let script = ["--", "/bin/sh", "-c", script];
    Some(unshare(&[&[PLIMSOLL, "run", "-q"], options, &script].concat()).unwrap())
}

#[test]
fn the_status_is_the_programs() {
    for (script, expected) in [
        ("[ $PPID = 1 ] && exit 7", 7),
        // The first process of a namespace ignores signals that it raises.
        ("kill -KILL $$", 128 + 9),
        ("kill -SEGV $$", 128 + 11),
    ] {
        let Some(output) = run(script) else { return };
        assert_eq!(output.status.code(), Some(expected), "{script}: {output:?}");
    }
}

#[test]
fn signals_to_the_first_process_reach_the_program() {
    let script = "trap 'exit 5' TERM; kill -TERM 1; while :; do sleep 0.01; done";
    let Some(output) = run(script) else { return };
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

/// Orphans end after their parents. Nothing else in the namespace can reap them.
#[test]
fn orphans_are_reaped() {
    let script = "
        for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.02 & exec true); done
        orphans() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c '^[0-9]* (sleep)'; }
        for i in $(seq 1000); do [ $(orphans) = 0 ] && exit 0; sleep 0.01; done
        exit 9";
    let Some(output) = run(script) else { return };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// After a restart, the program has the same number.
#[test]
fn each_killed_program_leaves_a_file() {
    let scene = Scene::new("first-process");
    let option = format!("--postmortem={}", scene.directory.display());
    for _ in 0..3 {
        let script = "kill -KILL $$";
        let Some(output) = run_with(&[&option], script) else {
            return;
        };
        assert_eq!(output.status.code(), Some(128 + 9), "{output:?}");
    }
    let files = std::fs::read_dir(&scene.directory).unwrap();
    let processes = files.map(|file| {
        let file = std::fs::File::open(file.unwrap().path()).unwrap();
        plimsoll_postmortem::read(&file).unwrap().process
    });
    let processes: Vec<u32> = processes.collect();
    assert_eq!(processes.len(), 3);
    assert!(processes.iter().all(|process| *process == processes[0]));
}
