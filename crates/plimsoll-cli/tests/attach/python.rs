//! Functions of Python are shown in place of the interpreter's.

use std::process::Command;

use serde_json::Value;

use crate::target::*;

/// Starts the program with known functions; `None` if Python is not installed.
fn known_python(threads: &[&str]) -> Option<Target> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attach/known.py");
    let mut target = Target::start(Command::new("python3").arg(program).args(threads));
    if target.line() == "ready\n" {
        return Some(target);
    }
    plimsoll_testkit::skip!("python3 is not installed");
    None
}

/// Returns Python's functions on the stack of a thread, with their lines, leaf first.
fn python_functions(thread: &Value) -> Vec<(&str, u64)> {
    let frames = thread["stack"]["frames"].as_array().expect("a list").iter();
    let own = frames.filter_map(|frame| {
        let name = frame["function"].as_str().expect("a name");
        let name = name.strip_suffix(" (known.py)")?;
        Some((name, frame["line"].as_u64().expect("a number")))
    });
    own.collect()
}

fn names<'v>(functions: &[(&'v str, u64)]) -> Vec<&'v str> {
    functions.iter().map(|&(name, _)| name).collect()
}

#[test]
fn blocked_threads_of_python_have_functions_and_lines() {
    let Some(target) = known_python(&["sleep", "with_native_between"]) else {
        return;
    };
    let source = include_str!("known.py");
    let line = |text: &str| {
        let found = source.lines().position(|line| line.trim() == text);
        found.expect("a line") as u64 + 1
    };
    let expected = [
        vec![
            ("inner", line("sys.stdin.read()")),
            ("outer", line("inner()")),
            ("<module>", line("outer()")),
        ],
        vec![("Server.wait", line("event.wait()"))],
        vec![("sleep", line("time.sleep(1000)"))],
        vec![
            (
                "with_native_between.<locals>.<lambda>",
                line("sorted([1], key=lambda number: time.sleep(1000))"),
            ),
            (
                "with_native_between",
                line("sorted([1], key=lambda number: time.sleep(1000))"),
            ),
        ],
    ];
    let without_scope = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    wait_for("the threads, blocked", || {
        let view = json(target.pid());
        let threads = view["threads"].as_array().expect("a list");
        let mut found: Vec<_> = threads.iter().map(python_functions).collect();
        // Versions before 3.11 have names without scopes.
        let plain = |functions: &[(&str, u64)]| -> Vec<(String, u64)> {
            let names = functions.iter();
            names
                .map(|&(name, line)| (without_scope(name), line))
                .collect()
        };
        found.sort();
        let mut expected = expected.clone();
        expected.sort();
        let found: Vec<_> = found.iter().map(|of| plain(of)).collect();
        let expected: Vec<_> = expected.iter().map(|of| plain(of)).collect();
        let are_whole = threads
            .iter()
            .all(|thread| thread["stack"]["is_complete"] == true);
        (found == expected && are_whole).then_some(())
    });
    let text = text(target.pid(), &[]);
    assert!(text.contains("\n    outer  known.py:"), "{text}");
}

#[test]
fn running_threads_of_python_have_functions() {
    let Some(target) = known_python(&["count", "call"]) else {
        return;
    };
    // Only one of them runs at a time; the other one waits for it.
    let (mut counts, mut calls, mut incomplete) = (0, 0, 0);
    wait_for("threads in their functions", || {
        let view = json(target.pid());
        for thread in view["threads"].as_array().expect("a list") {
            let functions = python_functions(thread);
            match &names(&functions)[..] {
                ["count"] => counts += 1,
                ["call"]
                | ["first", "call"]
                | ["second", "first", "call"]
                | ["third", "second", "first", "call"] => calls += 1,
                ["inner", "outer", "<module>"] | ["Server.wait"] => {}
                // Cut off, as the JSON says: the thread was stopped while it changed its frames.
                _ if thread["stack"]["is_complete"] == false => incomplete += 1,
                other => panic!("{other:?}: {thread}"),
            }
        }
        (counts >= 10 && calls >= 10).then_some(())
    });
    assert!(incomplete <= counts + calls, "{incomplete}");
}

#[test]
fn samples_of_python_have_its_functions() {
    let Some(target) = known_python(&["count"]) else {
        return;
    };
    let (own, all) = wait_for("CPU time", || {
        let text = text(target.pid(), &["--cpu", "500ms", "--rate", "200", "--json"]);
        let profile: Value = serde_json::from_str(&text).expect("JSON");
        let (mut own, mut all) = (0, 0);
        for stack in profile["stacks"].as_array().expect("a list") {
            let value = stack["value"].as_i64().expect("a number");
            let frames = stack["frames"].as_array().expect("a list").iter();
            let mut names = frames.filter_map(|frame| frame["function"].as_str());
            all += value;
            if names.any(|name| name == "count (known.py)") {
                own += value;
            }
        }
        (all > 20_000_000).then_some((own, all))
    });
    assert!(own > all / 2, "{own} of {all} ns");
}
