//! Threads have their states, stacks and waits.

use std::time::Instant;

use crate::target::*;

/// The names of threads, their system calls and a function of each stack.
pub const KNOWN: [(&str, &str, &str); 6] = [
    ("futex", "futex", "wait_in_futex"),
    ("nanosleep", "clock_nanosleep", "wait_in_nanosleep"),
    ("read", "read", "wait_in_read"),
    ("condition", "futex", "wait_for_condition"),
    ("mutex", "futex", "wait_for_mutex"),
    ("known", "read", "main"),
];

/// The system call by which a C library waits for events.
fn epoll() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "epoll_wait"
    } else {
        "epoll_pwait"
    }
}

#[test]
fn each_thread_has_its_state_and_its_functions() {
    let Some(program) = known() else { return };
    let mut threads: Vec<&str> = KNOWN[..5].iter().map(|known| known.0).collect();
    threads.extend(["epoll", "spinner"]);
    let target = Target::known(program, &threads);
    let calls = KNOWN[..5].iter().map(|&(name, call, _)| (name, call));
    let view = target.wait_until_blocked(&calls.chain([("epoll", epoll())]).collect::<Vec<_>>());
    let first = view["threads"][0].clone();
    assert_eq!(first["tid"], target.pid());
    for (name, call, function) in
        KNOWN[..5]
            .iter()
            .copied()
            .chain([("epoll", epoll(), "wait_in_epoll")])
    {
        let thread = thread(&view, name);
        assert_eq!(thread["system_call"], call, "{thread}");
        assert_eq!(thread["state"], "sleeping", "{thread}");
        assert_eq!(thread["stack"]["was_stopped"], false, "{thread}");
        assert_eq!(thread["stack"]["is_complete"], true, "{thread}");
        let functions = functions(thread);
        let at = functions.iter().position(|&name| name == function);
        let at = at.unwrap_or_else(|| panic!("{functions:?}"));
        assert_eq!(functions[at + 1], "start", "{functions:?}");
        let frame = &thread["stack"]["frames"][at];
        assert!(frame["file"].as_str().unwrap().ends_with("known.c") && frame["line"] != 0);
    }
    assert!(functions(&first).contains(&"main"), "{first}");
    let spinner = thread(&view, "spinner");
    assert_eq!(functions(spinner)[..2], ["spin_here", "start"], "{spinner}");
    assert_eq!(spinner["stack"]["was_stopped"], true);
    assert!(spinner["cpu_ns"].as_u64() > Some(0));
    assert_eq!(view["stopped_threads"], 1);
}

#[test]
fn owners_of_mutexes_and_deadlocks_are_named() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["mutex*2", "first", "second"]);
    let all = [("mutex", "futex"), ("first", "futex"), ("second", "futex")];
    let view = wait_for("the deadlock", || {
        let view = target.wait_until_blocked(&all);
        (view["deadlocks"].as_array()?.len() == 1).then_some(view)
    });
    let mutexes: Vec<_> = with_name(&view, "mutex").collect();
    for (at, waiter) in mutexes.iter().enumerate() {
        let futex = &waiter["futex"];
        assert_eq!(futex["owner"], target.pid(), "{waiter}");
        assert_eq!(futex["kind"], "mutex");
        let other = &mutexes[1 - at]["tid"];
        assert_eq!(futex["other_waiters"], serde_json::json!([other]));
    }
    let (first, second) = (thread(&view, "first"), thread(&view, "second"));
    assert_eq!(first["futex"]["owner"], second["tid"]);
    assert_eq!(second["futex"]["owner"], first["tid"]);
    let mut cycle: Vec<_> = view["deadlocks"][0].as_array().unwrap().clone();
    cycle.sort_by_key(|tid| tid.as_i64());
    assert_eq!(cycle, [first["tid"].clone(), second["tid"].clone()]);
    let text = text(target.pid(), &[]);
    assert!(text.contains("Deadlock: "), "{text}");
}

#[test]
fn owners_in_futex_words_are_named() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["inheriting", "robust"]);
    let view = target.wait_until_blocked(&[("inheriting", "futex"), ("robust", "futex")]);
    for name in ["inheriting", "robust"] {
        let waiter = thread(&view, name);
        assert_eq!(waiter["futex"]["kind"], "owned", "{waiter}");
        assert_eq!(waiter["futex"]["owner"], target.pid(), "{waiter}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn threads_without_a_stack_are_no_failure() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["lost", "left", "read"]);
    let view = wait_for("a lost stack", || {
        let view = target.wait_until_blocked(&[("read", "read")]);
        thread(&view, "lost")["stack"]["missing"].as_str()?;
        Some(view)
    });
    let lost = &thread(&view, "lost")["stack"];
    assert_eq!(
        lost["missing"],
        "its stack pointer is no address of the process"
    );
    // A zero word ends the stack.
    wait_for("a stack elsewhere", || {
        let view = json(target.pid());
        (functions(thread(&view, "left")) == ["leave_the_stack"]).then_some(())
    });
    assert!(functions(thread(&view, "read")).contains(&"wait_in_read"));
}

#[test]
fn a_thousand_threads_are_one_group_of_few_lines() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["read*1000", "spinner*2"]);
    target.wait_until_blocked(&[("read", "read")]);
    let began = Instant::now();
    let view = json(target.pid());
    println!(
        "1,002 threads: {:?}, of which {} ns for reading",
        began.elapsed(),
        view["reading_ns"]
    );
    assert_eq!(with_name(&view, "read").count(), 1000);
    for thread in with_name(&view, "read") {
        assert!(functions(thread).contains(&"wait_in_read"), "{thread}");
        assert_eq!(thread["stack"]["was_stopped"], false);
    }
    let text = text(target.pid(), &[]);
    assert!(text.lines().count() <= 60, "{text}");
    assert!(
        text.contains("1000 threads waiting in read: descriptor "),
        "{text}"
    );
    let all = crate::target::text(target.pid(), &["--all"]);
    assert!(all.len() > text.len());
}

#[test]
fn memory_has_owners_whose_sum_is_the_kernels() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["read*20"]);
    target.wait_until_blocked(&[("read", "read")]);
    let view = json(target.pid());
    let memory = &view["memory"];
    assert_eq!(memory["is_exact"], true, "{memory}");
    let owners = memory["owners"].as_array().unwrap();
    let sum: u64 = owners
        .iter()
        .map(|owner| owner["resident_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(memory["kernel_bytes_after"], sum);
    let of = |kind: &str| owners.iter().find(|owner| owner["kind"] == kind).unwrap();
    // The stack of each thread, and the first one's.
    assert!(of("stacks")["mappings"].as_u64() >= Some(21), "{memory}");
    assert!(of("stacks")["resident_bytes"].as_u64() >= Some(21 * 4096));
    let name = format!("file {}", program.display());
    assert!(
        owners.iter().any(|owner| owner["name"] == *name),
        "{memory}"
    );
    let text = text(target.pid(), &[]);
    assert!(text.contains("exactly the kernel's sum"), "{text}");
    assert!(text.contains("resident  stacks of threads"), "{text}");
}
