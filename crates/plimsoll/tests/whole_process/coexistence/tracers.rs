//! Tools that trace the whole process: gdb, strace and perf.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::{fs, hint, thread};

use plimsoll::profile::Detail;
use plimsoll_checks::profile::read_with_idle;
use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;
use plimsoll_testkit::client::wait_for;
use plimsoll_testkit::pprof::is_thread_entry;

use super::{Folder, is_installed, keeps_blocks_and_uses_time, passes, under, within};

/// A function at which gdb stops.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn plimsoll_test_breakpoint() {
    hint::black_box(());
}

#[inline(never)]
fn waits_here(end: &Receiver<()>) {
    // The sender is dropped.
    assert!(hint::black_box(end.recv()).is_err());
}

#[inline(never)]
fn spins_here(over: &AtomicBool) {
    while !hint::black_box(over).load(Ordering::Relaxed) {}
    hint::black_box(());
}

/// Returns the number of the process that traces this one; 0 without such a process.
fn tracer() -> u32 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let number = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    number
        .and_then(|number| number.trim().parse().ok())
        .expect("a number")
}

/// Reads profiles of threads until one has both threads: a blocked one, which Plimsoll reads from outside, and a
/// running one, which Plimsoll interrupts by a signal.
fn finds_both_threads() {
    wait_for("a blocked and a running thread, with their stacks", || {
        let profile = read_with_idle("goroutine", Detail::Names);
        let has = |function: &str, state: &str| {
            let samples = within(&profile, function);
            samples.into_iter().any(|sample| {
                let names = profile.names(sample);
                sample.value[0] == 1
                    && profile.label(sample, "state") == Some(state)
                    && names.last().is_some_and(|name| is_thread_entry(name))
            })
        };
        has("waits_here", "waiting") && has("spins_here", "running")
    });
}

fn reads_threads_while_traced() {
    assert_ne!(tracer(), 0);
    let _plimsoll = plimsoll::start();
    let over = AtomicBool::new(false);
    let (sender, end) = mpsc::channel();
    thread::scope(|scope| {
        let _over = Until(&over);
        let _sender = sender;
        scope.spawn(move || waits_here(&end));
        scope.spawn(|| spins_here(&over));
        finds_both_threads();
        plimsoll_test_breakpoint();
        // After all threads were stopped.
        finds_both_threads();
    });
}

/// gdb stops at real-time signals by default. The command `handle` makes it pass all signals on.
#[test]
fn threads_are_read_while_gdb_traces() {
    const NAME: &str = "threads_are_read_while_gdb_traces";
    if child::is_child() {
        return reads_threads_while_traced();
    }
    if !is_installed("gdb") {
        return plimsoll_testkit::skip!("gdb is not installed");
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch"]);
    for command in [
        "handle all nostop noprint pass",
        "break plimsoll_test_breakpoint",
        "run",
        "thread apply all backtrace",
        "continue",
    ] {
        gdb.args(["-ex", command]);
    }
    gdb.arg("--args");
    let (output, errors) = passes(&mut under(gdb, NAME, ""));
    let printed = String::from_utf8_lossy(&output.stdout);
    for expected in ["waits_here", "spins_here", "exited normally"] {
        assert!(printed.contains(expected), "{expected}: {printed}{errors}");
    }
}

#[test]
fn threads_are_read_while_strace_traces() {
    const NAME: &str = "threads_are_read_while_strace_traces";
    if child::is_child() {
        return reads_threads_while_traced();
    }
    if !is_installed("strace") {
        return plimsoll_testkit::skip!("strace is not installed");
    }
    let folder = Folder::new("strace");
    let file = folder.path("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(&file);
    passes(&mut under(strace, NAME, ""));
    let trace = fs::read_to_string(file).expect("strace wrote it");
    // Plimsoll's request, the signal that the running thread received, and the end.
    for expected in ["rt_tgsigqueueinfo(", "--- SIGRT_", "+++ exited with 0 +++"] {
        assert!(trace.contains(expected), "{expected}: {trace}");
    }
}

/// Both profilers find the same busy function. perf reads the processor's clock in the kernel, and Plimsoll has
/// timers.
#[test]
fn perf_records_beside_cpu_samples() {
    const NAME: &str = "perf_records_beside_cpu_samples";
    if child::is_child() {
        return keeps_blocks_and_uses_time();
    }
    if !is_installed("perf") {
        return plimsoll_testkit::skip!("perf is not installed");
    }
    let folder = Folder::new("perf");
    let file = folder.path("recorded");
    let perf = || {
        let mut perf = Command::new("perf");
        perf.args(["record", "-e", "cpu-clock:u", "-F", "999", "-o"]);
        perf.arg(&file).arg("--");
        perf
    };
    let tried = perf().arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return plimsoll_testkit::skip!("perf may not record here");
    }
    passes(&mut under(perf(), NAME, "heap_rate=16k"));
    let printed = Command::new("perf")
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(&file)
        .output()
        .expect("perf can be run");
    let samples = String::from_utf8_lossy(&printed.stdout);
    assert!(samples.contains("burns_here"), "{samples}");
}
