//! Nothing that attaching does is noticed by the process.

use std::process::{Command, Stdio};

use crate::command::file_of_command;
use crate::target::*;

/// The number of readings in each test: `PLIMSOLL_READINGS`, for a soak.
fn readings() -> usize {
    let number = std::env::var("PLIMSOLL_READINGS");
    number.map_or(30, |number| number.parse().expect("a number"))
}

#[test]
fn no_system_call_of_a_blocked_thread_is_interrupted() {
    let Some(program) = known() else { return };
    let threads = [
        "futex",
        "nanosleep",
        "epoll",
        "read",
        "condition",
        "spinner",
    ];
    let mut target = Target::known(program, &threads);
    target.wait_until_blocked(&[("futex", "futex"), ("read", "read"), ("condition", "futex")]);
    for _ in 0..readings() {
        let view = json(target.pid());
        assert_eq!(view["stopped_threads"], 1, "the spinner only");
    }
    assert_eq!(target.counts().interrupted, 0);
}

/// The thread is often between two waits when it is asked to stop.
#[test]
#[cfg(target_arch = "x86_64")]
fn no_system_call_of_a_thread_that_blocks_all_the_time_is_interrupted() {
    let Some(program) = known() else { return };
    let mut target = Target::known(program, &["server", "client"]);
    let before = target.counts();
    for _ in 0..readings() {
        text(target.pid(), &["--json"]);
    }
    text(target.pid(), &["--wall", "3s", "--rate", "1000", "--json"]);
    let after = target.counts();
    assert_eq!(after.interrupted, 0, "{after:?}");
    assert!(after.turns > before.turns, "it goes on");
}

#[test]
fn no_signal_is_lost_or_repeated() {
    let Some(program) = known() else { return };
    let mut target = Target::known(program, &["receiver", "sender"]);
    let counts = wait_for("all signals handled", || {
        text(target.pid(), &["--wall", "300ms", "--rate", "1000"]);
        let counts = target.counts();
        assert!(counts.handled <= counts.sent);
        (counts.sent == 20_000 && counts.handled == counts.sent).then_some(counts)
    });
    assert_eq!(counts.interrupted, 0);
    assert_eq!(target.counts().handled, 20_000);
}

#[test]
fn threads_that_end_meanwhile_are_no_failure() {
    let Some(program) = known() else { return };
    let mut target = Target::known(program, &["starter"]);
    // New threads have the name of the thread that starts them. It is not always found in one place.
    let has = |thread: &serde_json::Value| functions(thread).contains(&"start_threads");
    for _ in 0..20 {
        wait_for("the stack", || {
            let view = json(target.pid());
            with_name(&view, "starter").any(has).then_some(())
        });
    }
    let before = target.counts().turns;
    wait_for("more threads", || {
        (target.counts().turns > before).then_some(())
    });
}

#[test]
fn a_process_whose_reader_is_killed_goes_on() {
    let Some(program) = known() else { return };
    let mut target = Target::known(program, &["spinner", "server", "client"]);
    for _ in 0..10 {
        let mut reader = Command::new(file_of_command())
            .args([
                "attach",
                &target.pid().to_string(),
                "--wall",
                "100s",
                "--rate",
                "1000",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("it can be run");
        let before = target.counts().turns;
        wait_for("a reader that stops threads", || {
            let status = format!("/proc/{}/status", reader.id());
            let status = std::fs::read_to_string(status).ok()?;
            let switches = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            (switches.trim().parse::<u64>().ok()? > 50).then_some(())
        });
        reader.kill().expect("it runs");
        reader.wait().expect("it has ended");
        let killed = target.counts().turns;
        assert!(killed > before);
        wait_for("more turns", || {
            (target.counts().turns > killed).then_some(())
        });
    }
    let view = json(target.pid());
    assert_eq!(functions(thread(&view, "spinner"))[0], "spin_here");
    assert_eq!(target.counts().interrupted, 0);
}

#[test]
fn a_stopped_process_stays_stopped_and_is_read() {
    let Some(program) = known() else { return };
    let target = Target::known(program, &["spinner", "read"]);
    target.wait_until_blocked(&[("read", "read")]);
    target.signal(libc::SIGSTOP);
    let are_stopped = || target.states().iter().all(|&state| state == 'T');
    wait_for("the stop of all threads", || are_stopped().then_some(()));
    let view = json(target.pid());
    assert_eq!(view["stopped_threads"], 0);
    let spinner = thread(&view, "spinner");
    assert_eq!(spinner["state"], "stopped by a signal");
    assert_eq!(functions(spinner)[0], "spin_here", "{spinner}");
    assert!(functions(thread(&view, "read")).contains(&"wait_in_read"));
    assert!(are_stopped());
    target.signal(libc::SIGCONT);
    wait_for("going on", || (target.state() != 'T').then_some(()));
}
