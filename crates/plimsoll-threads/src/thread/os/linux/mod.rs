//! Linux: threads and their states from `/proc`, and stacks of running threads by a signal.

mod arch;
mod blocked;
pub mod calls;
pub mod joins;
mod requests;
mod status;
mod times;

pub use plimsoll_process::realtime_signal::range as signals;
use plimsoll_process::task_file::{self, TaskDirectory};
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::os::{process_id, thread_id};

use crate::thread::Thread;
use plimsoll_core::stack::{self, StackReader};

use blocked::Found;
use status::Status;

pub use requests::INTERRUPTIONS;

pub(crate) use times::add as add_times;

/// Requests the signal that interrupts running threads.
pub fn set_signal(signal: i32) {
    requests::SIGNAL.set_wanted(signal);
}

/// The reason why other threads are missing, if [`list`] returns `None`.
pub(crate) const NO_THREADS: &str =
    "/proc/self/task cannot be read: only the calling thread is included";

/// The number of attempts to find a running thread blocked before it is interrupted. Most threads
/// that are found running are about to wait.
const LOOKS: usize = 3;

/// Reads these threads, without names and labels. Returns true if the system does not report their
/// states: then all were interrupted.
pub(crate) fn read(
    tasks: &TaskDirectory,
    ids: Vec<i32>,
    depth: usize,
    reader: &mut StackReader,
    found: &mut Vec<Thread>,
) -> bool {
    stack::refresh_modules();
    let mut frames = vec![0; depth];
    let mut refused = false;
    let mut running = ids;
    for look in 0..LOOKS {
        if look > 0 {
            plimsoll_sys::primitives::yield_now();
        }
        running.retain(|&id| match blocked::read(tasks, id, reader, &mut frames) {
            Found::Blocked(thread) => {
                found.push(thread);
                false
            }
            Found::Ended => false,
            Found::Running => true,
            Found::Refused => {
                refused = true;
                true
            }
        });
        if running.is_empty() || refused {
            break;
        }
    }
    found.extend(requests::interrupt(tasks, &running, !refused, depth));
    refused
}

/// Reports whether a thread has ended, as the first one may while others go on.
pub(crate) fn has_ended(tasks: &TaskDirectory, id: i32) -> bool {
    match Status::read(tasks, id) {
        Ok(status) => status.is_some_and(|status| status.has_ended()),
        Err(error) => matches!(error, libc::ENOENT | libc::ESRCH),
    }
}

/// Returns the exit code of the first thread, in the form of `wait`: 0 while it lives.
pub(crate) fn exit_code(tasks: &TaskDirectory) -> Option<i32> {
    let mut buffer = [0; 1024];
    let stat = tasks.file(process_id() as i32, "stat").ok()?;
    let stat = std::str::from_utf8(stat.read(&mut buffer).ok()?).ok()?;
    // The code is the last field.
    stat.trim_end().rsplit(' ').next()?.parse().ok()
}

/// Ends the process with this code, in the form of `wait`.
pub(crate) fn end_with(code: i32) -> ! {
    let signal = libc::WTERMSIG(code);
    if signal != 0 {
        // SAFETY: the default action is valid. This thread blocks the signal, unless an instruction causes it.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
    // SAFETY: `_exit` may be called on any thread.
    unsafe { libc::_exit(libc::WEXITSTATUS(code)) }
}

/// Reports whether a thread blocks a signal; false if the system does not report that.
pub fn blocks(tasks: &TaskDirectory, id: i32, signal: std::ffi::c_int) -> bool {
    Status::new(tasks, id).is_some_and(|status| status.blocks(signal))
}

/// Returns the name of the calling thread; empty if a filter forbids to ask for it.
pub(crate) fn own_name() -> String {
    let mut name = [0; 16];
    // SAFETY: the kernel writes at most 16 bytes, the last of which is zero.
    unsafe {
        let (operation, to) = (libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize);
        call3(libc::SYS_prctl, operation, to, 0)
    };
    let length = name.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&name[..length.unwrap_or(0)]).into_owned()
}

/// Returns the numbers of all threads; `None` if the system does not report them.
pub(crate) fn list() -> Option<Vec<i32>> {
    if task_file::threads() == Some(1) {
        return Some(vec![thread_id()]);
    }
    TaskDirectory::open().ok()?.threads()
}
