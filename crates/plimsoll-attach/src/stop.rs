//! Stops a running thread while its registers and the used part of its stack are copied.
//!
//! Each stop has a separate tracing thread. When that ends, for any reason, the kernel detaches the stopped thread, which
//! goes on. To seize a thread does not stop it: if it has blocked meanwhile, the tracing thread ends without a stop.
//!
//! A thread may still block between the last look at it and the request to stop. The kernel then wakes it. Most system
//! calls are restarted without a trace. Some return `EINTR` instead; on x86-64, they are restarted as well (see
//! [`arch::restart`]).

use std::io;
use std::time::{Duration, Instant};

use plimsoll_unwind::registers::Registers;

use crate::arch;
use crate::maps::{self, Mapping};
use crate::memory::ProcessMemory;
use crate::threads::Position;

/// The most bytes of a stack that are copied while its thread is stopped: some 100 us.
const MAX_STACK: usize = 256 << 10;

/// The bytes of a stack that are copied if its end is unknown.
const UNKNOWN_STACK: usize = 64 << 10;

/// How long a thread may take to stop. It takes long in code of the kernel that cannot be interrupted.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long the tracing thread waits for the stop without sleeping.
const SPIN: Duration = Duration::from_micros(100);

/// Requests, whose type differs between C libraries.
const SEIZE: i32 = libc::PTRACE_SEIZE as i32;
const INTERRUPT: i32 = libc::PTRACE_INTERRUPT as i32;
const GETREGSET: i32 = libc::PTRACE_GETREGSET as i32;
const SETREGSET: i32 = libc::PTRACE_SETREGSET as i32;
const DETACH: i32 = libc::PTRACE_DETACH as i32;

/// A thread that was stopped.
pub(crate) struct Stopped {
    pub(crate) registers: Registers,
    /// Whether it was at the end of a system call.
    pub(crate) is_in_call: bool,
    /// Its stack, from the stack pointer up.
    pub(crate) stack: Vec<u8>,
    /// The time from the last look that found it not stopped until it was let go: it stood still for less.
    pub(crate) held: Duration,
}

/// The reason that a thread was not stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotStopped {
    /// It has blocked.
    Blocked,
    /// It has ended.
    Ended,
    /// The kernel does not allow it, or the thread does not stop in time.
    Failed(String),
}

/// Copies registers and stack of a running thread. Calls `while_stopped` before it goes on.
pub(crate) fn copy(
    pid: i32,
    tid: i32,
    mappings: &[Mapping],
    memory: &ProcessMemory,
    while_stopped: &mut (dyn FnMut() + Send),
) -> Result<Stopped, NotStopped> {
    std::thread::scope(|scope| {
        let tracer = std::thread::Builder::new().name("tracer".into());
        let tracer =
            tracer.spawn_scoped(scope, || trace(pid, tid, mappings, memory, while_stopped));
        match tracer.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(copied)) => copied,
            Ok(Err(_)) => Err(NotStopped::Failed("the tracing thread panicked".into())),
            Err(error) => Err(NotStopped::Failed(format!("no thread: {error}"))),
        }
    })
}

fn trace(
    pid: i32,
    tid: i32,
    mappings: &[Mapping],
    memory: &ProcessMemory,
    while_stopped: &mut (dyn FnMut() + Send),
) -> Result<Stopped, NotStopped> {
    // The stop lasts while this thread waits for a processor. Without permission, it keeps its priority.
    // SAFETY: the call changes the priority of this thread only, which ends soon.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    // Touched now, so that no page fault makes the stop longer.
    let mut stack = vec![1; MAX_STACK];
    request(SEIZE, tid, 0).map_err(|error| refused(pid, tid, &error))?;
    // The end of this thread detaches the other one, which was not stopped.
    match Position::read(pid, tid) {
        Ok(Position::Running) => {}
        Ok(Position::Blocked(_)) => return Err(NotStopped::Blocked),
        Ok(Position::Ended) | Err(_) => return Err(NotStopped::Ended),
    }
    let began = Instant::now();
    request(INTERRUPT, tid, 0).map_err(|error| refused(pid, tid, &error))?;
    let (signal, stopped) = wait(tid, began)?;
    // SAFETY: zeros are valid registers.
    let mut raw: arch::Raw = unsafe { std::mem::zeroed() };
    let copied = registers(GETREGSET, tid, &mut raw).map(|()| {
        // Only our own stop interrupts a call without a signal.
        if signal == 0 && arch::restart(&mut raw) {
            let _ = registers(SETREGSET, tid, &mut raw);
        }
        let registers = arch::registers(&raw);
        let from = registers.stack as usize;
        let end = maps::at(mappings, from).map(|mapping| mapping.range.end);
        let length = end.map_or(UNKNOWN_STACK, |end| end - from).min(MAX_STACK);
        let length = memory.copy(from, &mut stack[..length]);
        while_stopped();
        (registers, arch::is_in_call(&raw), length)
    });
    // A signal that was about to be delivered is handed on.
    let detached = request(DETACH, tid, signal as usize);
    let held = stopped.elapsed();
    let fail = |error: io::Error| refused(pid, tid, &error);
    let (registers, is_in_call, length) = copied.map_err(fail)?;
    detached.map_err(fail)?;
    stack.truncate(length);
    Ok(Stopped {
        registers,
        is_in_call,
        stack,
        held,
    })
}

/// Waits until the thread has stopped. Returns the signal that it was about to receive, 0 for a stop by our request;
/// and a time before it stopped.
fn wait(tid: i32, began: Instant) -> Result<(i32, Instant), NotStopped> {
    let mut before = began;
    loop {
        let mut status = 0;
        let now = Instant::now();
        // SAFETY: the kernel writes the status.
        let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        if found == tid {
            if !libc::WIFSTOPPED(status) {
                return Err(NotStopped::Ended);
            }
            let signal = match status >> 16 {
                libc::PTRACE_EVENT_STOP => 0,
                _ => libc::WSTOPSIG(status),
            };
            return Ok((signal, before));
        }
        before = now;
        if found < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(NotStopped::Ended);
        }
        let waited = began.elapsed();
        if waited > PATIENCE {
            return Err(NotStopped::Failed(
                "it did not stop within 100 ms: it is in code of the kernel".into(),
            ));
        }
        if waited > SPIN {
            std::thread::sleep(Duration::from_micros(20));
        } else {
            std::thread::yield_now();
        }
    }
}

fn request(request: i32, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: these requests take no memory of this process.
    let done = unsafe { libc::ptrace(request as _, tid, 0_usize, data) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const NT_PRSTATUS: usize = 1;

/// Copies the registers of a stopped thread, with `PTRACE_GETREGSET`, or replaces them, with `PTRACE_SETREGSET`.
fn registers(request: i32, tid: i32, raw: &mut arch::Raw) -> io::Result<()> {
    let mut place = libc::iovec {
        iov_base: (&raw mut *raw).cast(),
        iov_len: size_of::<arch::Raw>(),
    };
    // SAFETY: the kernel reads or writes at most the length of `raw`, in which any bytes are valid.
    let done = unsafe { libc::ptrace(request as _, tid, NT_PRSTATUS, &raw mut place) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn refused(pid: i32, tid: i32, error: &io::Error) -> NotStopped {
    if error.raw_os_error() == Some(libc::ESRCH) {
        return NotStopped::Ended;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status"));
    let status = status.unwrap_or_default();
    match crate::refusal::field(&status, "TracerPid") {
        Some(tracer) if tracer != "0" => {
            NotStopped::Failed(format!("process {tracer} traces it already"))
        }
        _ => NotStopped::Failed(format!("the kernel does not stop it: {error}")),
    }
}
