//! Samples from outside show what threads do, by elapsed time and by CPU time.

use std::process::Command;

use serde_json::Value;

use crate::command::{Directory, file_of_command};
use crate::target::*;

/// Returns the value of all stacks with a function, and the total.
fn value_of(profile: &Value, function: &str) -> (i64, i64) {
    let stacks = profile["stacks"].as_array().expect("a list");
    let has = |stack: &&Value| {
        let frames = stack["frames"].as_array().expect("a list");
        frames.iter().any(|frame| frame["function"] == function)
    };
    let values = stacks.iter().filter(has);
    let sum = values
        .map(|stack| stack["value"].as_i64().expect("a number"))
        .sum();
    (sum, profile["total"].as_i64().expect("a number"))
}

fn sampled(pid: i32, options: &[&str]) -> Value {
    let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&text(pid, &options)).expect("JSON")
}

#[test]
fn elapsed_time_is_that_of_all_threads() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["spinner", "read*3"]);
    target.wait_until_blocked(&[("read", "read")]);
    let profile = sampled(target.pid(), &["--wall", "2s"]);
    let duration = profile["duration_ns"].as_i64().unwrap();
    assert!(duration >= 2_000_000_000, "{duration}");
    let (reading, total) = value_of(&profile, "wait_in_read");
    let (spinning, _) = value_of(&profile, "spin_here");
    // Five threads, each for the whole time.
    assert_eq!(total, 5 * duration);
    assert_eq!(reading, 3 * duration);
    assert_eq!(spinning, duration);
}

#[test]
fn cpu_time_is_that_of_the_running_threads() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["spinner", "read*3"]);
    let view = target.wait_until_blocked(&[("read", "read")]);
    let used = |view: &Value| thread(view, "spinner")["cpu_ns"].as_i64().unwrap();
    let before = used(&view);
    let profile = sampled(target.pid(), &["--cpu", "2s"]);
    let after = used(&json(target.pid()));
    let (spinning, total) = value_of(&profile, "spin_here");
    assert_eq!(spinning, total, "no other thread runs");
    // The samples cover a part of the time between the two readings.
    assert!(
        total > 0 && total <= after - before,
        "{total} {before} {after}"
    );
}

#[test]
fn profiles_are_read_by_the_other_commands() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["spinner", "read*3"]);
    target.wait_until_blocked(&[("read", "read")]);
    let directory = Directory::new("attach-profiles");
    let report = |options: &[&str], file: &str| {
        let out = directory.path(file);
        let options: Vec<&str> = options.iter().copied().chain(["--out", &out]).collect();
        text(target.pid(), &options);
        let output = Command::new(file_of_command())
            .args(["report", &out, "--folded"])
            .output()
            .expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let threads = report(&[], "threads.pb.gz");
    let reading = threads.lines().find(|line| line.contains("wait_in_read"));
    assert!(
        reading.is_some_and(|line| line.ends_with(" 3")),
        "{threads}"
    );
    let wall = report(&["--wall", "500ms"], "wall.pb.gz");
    assert!(
        wall.contains("wait_in_read") && wall.contains("spin_here"),
        "{wall}"
    );
    let cpu = report(&["--cpu", "1s"], "cpu.pb.gz");
    assert!(
        cpu.contains("spin_here") && !cpu.contains("wait_in_read"),
        "{cpu}"
    );
}

/// The vDSO is in no file.
#[test]
fn functions_of_the_kernel_in_the_process_have_names() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["clock"]);
    let of_kernel = |frame: &Value| {
        let name = frame["function"].as_str().expect("a name");
        name.starts_with("__vdso_")
            || name.starts_with("__kernel_")
            || name.starts_with("[vdso]+0x")
    };
    let stack = wait_for("a stack in the vDSO", || {
        let profile = sampled(target.pid(), &["--cpu", "500ms"]);
        let stacks = profile["stacks"].as_array()?.iter();
        let mut stacks = stacks.map(|stack| stack["frames"].as_array().expect("a list"));
        stacks.find(|frames| frames.iter().any(of_kernel)).cloned()
    });
    let has = |function: &str| stack.iter().any(|frame| frame["function"] == function);
    assert!(has("read_the_clock") && has("start"), "{stack:?}");
}

#[test]
fn the_text_has_shares_and_at_most_sixty_lines() {
    let Some(program) = known() else { return };
    let threads = [
        "spinner",
        "read",
        "futex",
        "condition",
        "mutex",
        "nanosleep",
        "epoll",
    ];
    let target = Target::known(program, &threads);
    target.wait_until_blocked(&[("read", "read"), ("condition", "futex")]);
    let text = text(target.pid(), &["--wall", "500ms"]);
    assert!(text.lines().count() <= 60, "{text}");
    assert!(
        text.contains("%  ") && text.contains("    spin_here\n"),
        "{text}"
    );
}

#[test]
fn a_process_that_ends_meanwhile_leaves_its_samples() {
    let Some(program) = known() else { return };
    let mut target = Target::known(program, &["spinner"]);
    let reader = Command::new(file_of_command())
        .args([
            "attach",
            &target.pid().to_string(),
            "--wall",
            "100s",
            "--json",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it can be run");
    wait_for("samples", || {
        let switches = std::fs::read_to_string(format!("/proc/{}/status", reader.id())).ok()?;
        let switches = switches
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        (switches.trim().parse::<u64>().ok()? > 30).then_some(())
    });
    target.child.kill().expect("it runs");
    target.child.wait().expect("it has ended");
    let output = reader.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    let profile: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(value_of(&profile, "spin_here").0 > 0, "{profile}");
    assert!(
        profile["comments"]
            .to_string()
            .contains("the process ended after"),
        "{profile}"
    );
}
