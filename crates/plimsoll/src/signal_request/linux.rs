//! Linux. The signal's handler wakes a thread of Plimsoll, which does the work.

use std::ffi::CStr;
use std::io;
use std::ptr;

use plimsoll_sys::os::bell::Bell;
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::os::{filter, process_id};
use plimsoll_sys::primitives::{AtomicPtr, AtomicU32, Ordering};

use super::Signal;
use plimsoll_core::{internal_scope, internal_thread};

/// The thread that works for a signal.
struct Request {
    /// Wakes the thread; the signal's handler rings it. Never freed.
    bell: AtomicPtr<Bell>,
    /// The process that contains the thread: the child of a fork has none. 0 before there is a thread, and once a signal that ends the process has arrived.
    process: AtomicU32,
}

static QUIT: Request = Request::new();
static TERMINATE: Request = Request::new();
static INTERRUPT: Request = Request::new();

impl Signal {
    fn number(self) -> i32 {
        match self {
            Self::Quit => libc::SIGQUIT,
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
        }
    }

    fn thread_name(self) -> &'static CStr {
        match self {
            Self::Quit => c"plimsoll-dump",
            Self::Terminate | Self::Interrupt => c"plimsoll-out",
        }
    }

    fn request(self) -> &'static Request {
        match self {
            Self::Quit => &QUIT,
            Self::Terminate => &TERMINATE,
            Self::Interrupt => &INTERRUPT,
        }
    }

    /// Whether the process ends after the work, as it would without a handler.
    fn ends_the_process(self) -> bool {
        self != Self::Quit
    }
}

/// Makes the signal call `work` on a thread of Plimsoll. A signal that ends the process does so after that; a second
/// one ends it at once. In the child of a fork, the signal has its default effect.
///
/// # Errors
/// The program handles or ignores the signal; or the system's error: too many threads.
pub(crate) fn on(signal: Signal, work: fn()) -> io::Result<()> {
    let _own = internal_scope::scope();
    let request = signal.request();
    if request.process.load(Ordering::Relaxed) == process_id() {
        return Ok(());
    }
    filter::check(&[(libc::SYS_rt_sigaction, "rt_sigaction")])?;
    let handler = handle as extern "C" fn(i32) as usize;
    // SAFETY: the pointers are null or valid, and a zeroed action is the default one.
    let before = unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal.number(), ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        before.sa_sigaction
    };
    if before != libc::SIG_DFL && before != handler {
        let message = format!("the program handles or ignores {signal} itself");
        return Err(io::Error::other(message));
    }
    let bell: &'static Bell = Box::leak(Box::new(Bell::new()?));
    internal_thread::spawn(signal.thread_name(), move || {
        while internal_thread::wait(bell, None).is_ok() {
            work();
            if signal.ends_the_process() {
                end_by(signal.number());
                unblock(signal.number());
            }
        }
        // A filter ends this thread: from now on the signal has its default effect.
        request.process.store(0, Ordering::Release);
    })?;
    let address = &raw const *bell;
    request.bell.store(address.cast_mut(), Ordering::Relaxed);
    request.process.store(process_id(), Ordering::Release);
    // SAFETY: the handler has the type that the flags require, only makes async-signal-safe calls,
    // and lives as long as the program.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        if libc::sigaction(signal.number(), &raw const action, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn handle(number: i32) {
    let signal = match number {
        libc::SIGTERM => Signal::Terminate,
        libc::SIGINT => Signal::Interrupt,
        _ => Signal::Quit,
    };
    let request = signal.request();
    if request.process.load(Ordering::Acquire) != process_id() {
        return end_by(number);
    }
    if signal.ends_the_process() {
        request.process.store(0, Ordering::Relaxed);
    }
    // SAFETY: the bell was stored before the process, and is never freed.
    unsafe { &*request.bell.load(Ordering::Relaxed) }.ring();
}

/// Sends the signal to the calling thread with its default effect. It arrives as soon as the thread does not block it:
/// in the signal's handler, when the handler returns.
fn end_by(signal: i32) {
    // SAFETY: these system calls are allowed in a handler, and the pointers are valid or null.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, ptr::null_mut());
        let thread = call3(libc::SYS_gettid, 0, 0, 0);
        call3(
            libc::SYS_tgkill,
            process_id() as usize,
            thread as usize,
            signal as usize,
        );
    }
}

/// Lets the calling thread, which blocks all signals, receive this one.
fn unblock(signal: i32) {
    // SAFETY: the set is valid.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

impl Request {
    const fn new() -> Self {
        Self {
            bell: AtomicPtr::new(ptr::null_mut()),
            process: AtomicU32::new(0),
        }
    }
}
