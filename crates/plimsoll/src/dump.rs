//! Text for people: what every thread is doing, at once, when somebody wants to know.

use std::io::{self, Write};
use std::panic;
use std::sync::OnceLock;

use crate::os::bell::Bell;
use crate::os::syscall::call3;
use crate::primitives::{AtomicU32, Ordering};
use crate::profile::{self, Format};
use crate::{own, own_thread};

/// Writes what every thread of the program is doing, as Go does it for `debug=2`: the state, and
/// the stack with functions, files and lines. Of a stack with more than 100 calls, the 50
/// innermost and the 50 outermost.
///
/// ```
/// let mut text = Vec::new();
/// plimsoll::dump(&mut text)?;
/// assert!(text.starts_with(b"goroutine "));
/// # std::io::Result::Ok(())
/// ```
///
/// Nobody is stopped; threads that are running are interrupted for some microseconds. What is in it
/// is otherwise as in the profile `goroutine`.
///
/// # Errors
/// The first error of `writer`, unchanged.
pub fn dump(writer: &mut impl Write) -> io::Result<()> {
    let goroutine = profile::lookup("goroutine").expect("it is built in");
    goroutine.write_to(writer, Format::Dump)
}

/// To standard error. If that cannot be written to, nobody is told.
fn dump_to_stderr() {
    let _ = dump(&mut io::stderr());
}

/// What the handler of the signal rings.
static BELL: OnceLock<Bell> = OnceLock::new();

/// The process that has the thread which hears it.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Has `SIGQUIT` write a dump to standard error, and do nothing else.
///
/// # Errors
/// The program has a use for the signal; or the system's: there are too many descriptors or
/// threads.
pub(crate) fn on_sigquit() -> io::Result<()> {
    crate::contention::note_owners();
    let _own = own::scope();
    if BELL.get().is_none() {
        let bell = Bell::new()?;
        if BELL.set(bell).is_err() {
            return Ok(());
        }
    } else if PROCESS.load(Ordering::Relaxed) == std::process::id() {
        return Ok(());
    }
    let Some(bell) = BELL.get() else {
        return Ok(());
    };
    own_thread::spawn(c"plimsoll-dump", move || {
        loop {
            bell.wait(None);
            dump_to_stderr();
        }
    })?;
    PROCESS.store(std::process::id(), Ordering::Release);
    // SAFETY: the handler is of the type that the flags say, does what a handler may, and lives as
    // long as the program.
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
    // SAFETY: always callable.
    let process = unsafe { call3(libc::SYS_getpid, 0, 0, 0) };
    if PROCESS.load(Ordering::Acquire) as isize == process {
        if let Some(bell) = BELL.get() {
            bell.ring();
        }
        return;
    }
    // A fork's child, where nobody listens: it ends, as it would have.
    // SAFETY: what a handler may do. The signal comes when this one returns.
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

/// Has a panic write a dump to standard error, after what it writes anyway. Once.
pub(crate) fn on_panic() {
    crate::contention::note_owners();
    static SET: OnceLock<()> = OnceLock::new();
    if std::thread::panicking() || SET.set(()).is_err() {
        return;
    }
    let _own = own::scope();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |information| {
        before(information);
        dump_to_stderr();
    }));
}
