//! Other systems, of whose figures only the CPU time is available.

use plimsoll_sys::os::clock;

use super::super::Process;

/// Returns the system's figures.
pub(in super::super) fn read() -> Process {
    let cpu = clock::process_cpu();
    Process {
        cpu_seconds: (cpu != 0).then_some(cpu as f64 / 1e9),
        ..Process::default()
    }
}
