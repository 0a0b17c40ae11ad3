//! The metrics of the process that all clients of Prometheus have under the same names,
//! `process_*`.
//!
//! `process_network_*` is missing: the system counts traffic for all processes that share a network
//! together.

mod os;

use super::exposition::{Family, Kind, Number, Page};

/// The system's figures of this process; `None` for unknown ones.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    cpu_seconds: Option<f64>,
    open_files: Option<u64>,
    /// The limit of open files; `u64::MAX` for none.
    most_files: Option<u64>,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    /// The limit of the address space; `u64::MAX` for none.
    most_virtual_bytes: Option<u64>,
    /// The start time, in seconds since 1970.
    start_seconds: Option<f64>,
}

/// Returns the time at which the process began, in seconds since 1970; `None` if it is unknown.
pub(super) fn start_seconds() -> Option<f64> {
    os::read().start_seconds
}

pub(super) fn write(page: &mut Page) {
    let process = os::read();
    let mut put = |name, unit, kind, help, value: Option<Number>| {
        if let Some(value) = value {
            let family = Family {
                name,
                help,
                kind,
                unit,
            };
            page.single(&family, value);
        }
    };
    put(
        "process_cpu_seconds",
        "seconds",
        Kind::Counter,
        "CPU time of the process, in user and system mode.",
        process.cpu_seconds.map(Into::into),
    );
    put(
        "process_max_fds",
        "",
        Kind::Gauge,
        "Maximum number of open files.",
        process.most_files.map(Into::into),
    );
    put(
        "process_open_fds",
        "",
        Kind::Gauge,
        "Number of open files.",
        process.open_files.map(Into::into),
    );
    put(
        "process_resident_memory_bytes",
        "bytes",
        Kind::Gauge,
        "Resident memory of the process.",
        process.resident_bytes.map(Into::into),
    );
    put(
        "process_start_time_seconds",
        "seconds",
        Kind::Gauge,
        "Start time of the process, in seconds since 1970.",
        process.start_seconds.map(Into::into),
    );
    put(
        "process_virtual_memory_bytes",
        "bytes",
        Kind::Gauge,
        "Virtual memory of the process.",
        process.virtual_bytes.map(Into::into),
    );
    put(
        "process_virtual_memory_max_bytes",
        "bytes",
        Kind::Gauge,
        "Maximum virtual memory of the process.",
        process.most_virtual_bytes.map(Into::into),
    );
}
