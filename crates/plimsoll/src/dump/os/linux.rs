//! Linux: `SIGQUIT`.

use std::io;
use std::sync::OnceLock;

use plimsoll_sys::os::eventfd::Bell;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::primitives::{AtomicU32, Ordering};

use super::super::dump_to_stderr;
use plimsoll_core::{internal_scope, internal_thread};

/// Wakes the dumping thread; the signal's handler rings it.
static BELL: OnceLock<Bell> = OnceLock::new();

/// The process that contains the dumping thread.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Makes `SIGQUIT` write a dump to standard error, and do nothing else.
///
/// # Errors
/// The program handles the signal itself; or the system's error: too many descriptors or threads.
pub(crate) fn on_sigquit() -> io::Result<()> {
    crate::recording::note_owners();
    let _own = internal_scope::scope();
    if BELL.get().is_none() {
        let bell = Bell::new()?;
        if BELL.set(bell).is_err() {
            return Ok(());
        }
    } else if PROCESS.load(Ordering::Relaxed) == process_id() {
        return Ok(());
    }
    let Some(bell) = BELL.get() else {
        return Ok(());
    };
    internal_thread::spawn(c"plimsoll-dump", move || {
        while internal_thread::wait(bell, None).is_ok() {
            dump_to_stderr();
        }
    })?;
    PROCESS.store(process_id(), Ordering::Release);
    // SAFETY: the handler has the type that the flags require, only makes async-signal-safe calls,
    // and lives as long as the program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = quit as extern "C" fn(i32) as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGQUIT, &raw const action, &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != action.sa_sigaction {
            libc::sigaction(libc::SIGQUIT, &raw const before, std::ptr::null_mut());
            return Err(io::Error::other("the program handles SIGQUIT itself"));
        }
    }
    Ok(())
}

extern "C" fn quit(signal: i32) {
    let process = process_id();
    if PROCESS.load(Ordering::Acquire) == process {
        if let Some(bell) = BELL.get() {
            bell.ring();
        }
        return;
    }
    // The child of a fork has no dumping thread: the signal ends it, as by default.
    // SAFETY: these system calls are allowed in a handler. The signal arrives when this handler
    // returns.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        let thread = call3(libc::SYS_gettid, 0, 0, 0);
        call3(
            libc::SYS_tgkill,
            process as usize,
            thread as usize,
            signal as usize,
        );
    }
}
