//! The runtimes of tokio in a process.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use plimsoll_awaits::{Index, Memory, Missing, Runtimes, Sections, Thread};
use plimsoll_command::failure::Failure;
use plimsoll_command::files;
use plimsoll_process::robust_list;

use crate::arch;
use crate::memory::ProcessMemory;
use crate::process::Process;
use crate::threads::{self, Position};

/// The runtimes of a process, as they were read.
pub(crate) struct Reading {
    pub(crate) runtimes: Runtimes,
    /// The process's monotonic clock at the reading, in nanoseconds; `None` if it has another one than this command.
    pub(crate) at_ns: Option<u64>,
    /// The time that it took to read the debug information and the tasks.
    pub(crate) took: Duration,
}

/// Reads the runtimes.
///
/// # Errors
/// What it would need is missing, with the reason; or the process has ended.
pub(crate) fn read(process: &Process) -> Result<Reading, Failure> {
    let target = &process.target;
    let fail = |cause: String| Failure::new(format!("process {}", target.pid), cause);
    if !arch::HAS_THREAD_POINTERS {
        return Err(fail("tasks can be read on x86-64 only".into()));
    }
    let began = Instant::now();
    let programs = process.images.named(|name| name == target.program);
    let Some((path, base, _)) = programs.first() else {
        return Err(fail("its program's file cannot be read".into()));
    };
    let roots = [
        PathBuf::from("/"),
        PathBuf::from(format!("/proc/{}/root", target.pid)),
    ];
    let sections = Sections::read(Path::new(path), &roots, &files::open_regular);
    let sections = sections.map_err(|missing| fail(reason(&missing)))?;
    let index = Index::read(&sections).map_err(|missing| fail(reason(&missing)))?;
    let tls = sections.tls.filter(|_| index.has_tokio());
    let Some(tls) = tls else {
        return Err(fail(
            "its program does not contain tokio, or its debug information has no types of tokio"
                .into(),
        ));
    };
    let memory = OtherMemory(&process.memory);
    let threads = threads::numbers(target.pid).into_iter();
    let threads = threads.filter_map(|tid| {
        Some(Thread {
            id: tid,
            pointer: thread_pointer(tid, &process.memory)?,
            stack: stack(process, tid),
        })
    });
    let threads: Vec<_> = threads.collect();
    if threads.is_empty() {
        let cause = "its C library does not show where the variables of threads are: tasks can be read with glibc";
        return Err(fail(cause.into()));
    }
    let runtimes = Runtimes::read(&index, &memory, &tls, *base as u64, &threads);
    if !target.exists() {
        return Err(target.ended());
    }
    Ok(Reading {
        runtimes,
        at_ns: has_clock_of_this_command(target.pid).then(monotonic_ns),
        took: began.elapsed(),
    })
}

fn reason(missing: &Missing) -> String {
    match missing {
        Missing::File(error) => format!("its program cannot be read: {error}"),
        Missing::DebugInformation => {
            "its program has no debug information, and no file below /usr/lib/debug belongs to it; \
            build it with debug = \"full\""
                .into()
        }
        Missing::Split => {
            "its debug information lies in other files; build it with split-debuginfo = \"off\""
                .into()
        }
        Missing::Types => {
            "its debug information has no types; build it with debug = \"full\"".into()
        }
    }
}

struct OtherMemory<'a>(&'a ProcessMemory);

impl Memory for OtherMemory<'_> {
    fn fill(&self, address: u64, to: &mut [u8]) -> bool {
        self.0.fill(address as usize, to)
    }
}

/// Returns the thread pointer of a thread.
fn thread_pointer(tid: i32, memory: &ProcessMemory) -> Option<u64> {
    let list = robust_list::address(tid)?;
    arch::thread_pointer(list as u64, |at| memory.word(at as usize))
}

/// Returns the part of a thread's stack that is in use; an empty one while the thread runs.
fn stack(process: &Process, tid: i32) -> Range<u64> {
    let start = match Position::read(process.target.pid, tid) {
        Ok(Position::Blocked(blocked)) => blocked.stack,
        _ => return 0..0,
    };
    let mut mappings = process.mappings.iter();
    let mapping = mappings.find(|mapping| mapping.range.contains(&start));
    mapping.map_or(0..0, |mapping| start as u64..mapping.range.end as u64)
}

/// Returns whether a process is in the time namespace of this command.
fn has_clock_of_this_command(pid: i32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/time")).ok();
    namespace(&pid.to_string()) == namespace("self")
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes to the variable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
