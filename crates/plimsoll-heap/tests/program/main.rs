//! The heap as the allocator of this program, of the test harness, too.

mod blocks;
mod faults;
mod forks;
mod memory;
mod model;
mod sequences;
mod snapshots;

#[global_allocator]
static HEAP: plimsoll_heap::Heap = plimsoll_heap::Heap;

/// Calls `act` in a process of its own: the test `name` of this program, alone. Returns the output of that
/// process; inside it, calls `act` and ends the process.
fn in_own_process(name: &str, act: impl FnOnce()) -> Option<std::process::Output> {
    const INSIDE: &str = "PLIMSOLL_HEAP_OWN_PROCESS";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        act();
        std::process::exit(0);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = std::process::Command::new(program);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command.env(INSIDE, name).output();
    Some(output.expect("the program starts again"))
}

/// Calls `act` in a process of its own, which must succeed.
fn must_succeed(name: &str, act: impl FnOnce()) {
    if let Some(output) = in_own_process(name, act) {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", output.status);
    }
}
