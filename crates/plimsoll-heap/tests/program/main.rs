//! The heap as the allocator of this program, of the test harness, too.

mod blocks;
mod faults;
mod forks;
mod memory;
mod model;
mod sequences;
mod snapshots;

use std::os::unix::process::CommandExt;

#[global_allocator]
static HEAP: plimsoll_heap::Heap = plimsoll_heap::Heap;

/// Calls `act` in a separate process, which runs only the test `name` of this program. Returns the output of
/// that process; inside it, calls `act` and ends the process.
fn in_own_process(name: &str, act: impl FnOnce()) -> Option<std::process::Output> {
    in_limited_process(name, libc::RLIM_INFINITY, act)
}

/// The same, in a process with a limit of its address space in bytes.
fn in_limited_process(name: &str, limit: u64, act: impl FnOnce()) -> Option<std::process::Output> {
    const INSIDE: &str = "PLIMSOLL_HEAP_OWN_PROCESS";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        act();
        std::process::exit(0);
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = std::process::Command::new(program);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(INSIDE, name);
    // SAFETY: the function makes one system call.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    Some(command.output().expect("the program starts again"))
}

/// Calls `act` in a separate process, which must succeed.
fn must_succeed(name: &str, act: impl FnOnce()) {
    if let Some(output) = in_own_process(name, act) {
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {text}", output.status);
    }
}
