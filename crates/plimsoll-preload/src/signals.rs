//! Signals that end the process. If the program left a signal at its default, the report is written
//! first. Then the default takes effect, so that the parent of the process sees the same status.
//!
//! The program does not notice the handler: it reads the default action, and its own actions take
//! effect.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::reporting;
use plimsoll_sys::arch;
use plimsoll_sys::os::signals::{BlockedSignals, Cause, FATAL, Fatal};

use crate::next::Next;

/// Returns the signals that get a handler: all but the one of system call filters. A sandbox that installs a handler for it
/// by a direct call expects the default action, and prints an error otherwise.
fn handled() -> impl Iterator<Item = &'static Fatal> {
    FATAL.iter().filter(|signal| signal.number != libc::SIGSYS)
}

/// The time in seconds after which the process ends without a report. The report may wait for a
/// resource that the interrupted thread holds.
const PATIENCE: libc::time_t = 10;

/// The size of the stack on which the report is written, in bytes. The thread's own may be too
/// small.
const STACK: usize = 1 << 20;

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

static NEXT_SIGACTION: Next = Next::new("sigaction\0");

/// Whether the handlers are installed.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Installs the handler for each fatal signal whose action is the default.
pub(crate) fn prepare() {
    for signal in handled().map(|signal| signal.number) {
        // SAFETY: `before` is writable, and `ours` returns a valid action.
        unsafe {
            let mut before = MaybeUninit::zeroed();
            if real_sigaction(signal, std::ptr::null(), before.as_mut_ptr()) == 0
                && before.assume_init().sa_sigaction == libc::SIG_DFL
            {
                real_sigaction(signal, &ours(), std::ptr::null_mut());
            }
        }
    }
    PREPARED.store(true, Ordering::Relaxed);
}

/// Restores the default actions before a system call filter, which may forbid all that a handler does.
pub(crate) fn before_filter() {
    PREPARED.store(false, Ordering::Relaxed);
    for signal in handled().map(|signal| signal.number) {
        // SAFETY: `now` is writable, and the default action is valid.
        unsafe {
            let mut now = MaybeUninit::zeroed();
            if real_sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
                && is_ours(now.assume_init().sa_sigaction)
            {
                let mut default: libc::sigaction = zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                real_sigaction(signal, &default, std::ptr::null_mut());
            }
        }
    }
}

fn ours() -> libc::sigaction {
    // SAFETY: the struct consists of integers and pointers, for which zero is a valid value.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = ends as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    action
}

fn is_ours(handler: usize) -> bool {
    handler == ends as *const () as usize
}

unsafe fn real_sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    match NEXT_SIGACTION.get() {
        // SAFETY: `next` is the C library's `sigaction`, which has this type. The pointers are null
        // or valid, as its contract and this function's require.
        Some(next) => unsafe {
            std::mem::transmute::<*mut c_void, Sigaction>(next)(signal, action, before)
        },
        None => -1,
    }
}

/// # Safety
/// The requirements of C's `sigaction`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as C's `sigaction` requires, `action` is null or readable, and `before` is null or
    // writable.
    unsafe {
        let mut wanted = action;
        let ours = ours();
        if takes_place(signal) && !action.is_null() && (*action).sa_sigaction == libc::SIG_DFL {
            wanted = &raw const ours;
        }
        let result = real_sigaction(signal, wanted, before);
        if result == 0 && !before.is_null() && is_ours((*before).sa_sigaction) {
            *before = zeroed();
        }
        result
    }
}

/// Functions with the type of C's `signal`: they set an action, and return the one before.
macro_rules! signals {
    ($($name:ident, $exported:literal;)*) => {$(
        /// # Safety
        /// The requirements of the C function of that name.
        #[unsafe(export_name = $exported)]
        pub unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            static NEXT: Next = Next::new(concat!($exported, "\0"));
            // SAFETY: the C function of that name has this type.
            unsafe { set(&NEXT, signal, handler) }
        }
    )*};
}

// `ssignal`, `bsd_signal` and `sysv_signal` are further names of the C library. With some standards, programs that call
// `signal` call `__sysv_signal`.
signals! {
    signal, "signal";
    ssignal, "ssignal";
    bsd_signal, "bsd_signal";
    sysv_signal, "sysv_signal";
    internal_sysv_signal, "__sysv_signal";
    sigset, "sigset";
}

/// Calls a function with the type of `signal`. The program sees the default action in place of this library's.
///
/// # Safety
/// `next` finds a function of that type.
unsafe fn set(next: &Next, signal: c_int, handler: usize) -> usize {
    type Signal = unsafe extern "C" fn(c_int, usize) -> usize;
    let Some(next) = next.get() else {
        return libc::SIG_ERR;
    };
    let wanted = if takes_place(signal) && handler == libc::SIG_DFL {
        ends as *const () as usize
    } else {
        handler
    };
    // SAFETY: the caller states the type; the function has no preconditions.
    let before = unsafe { std::mem::transmute::<*mut c_void, Signal>(next)(signal, wanted) };
    if is_ours(before) {
        libc::SIG_DFL
    } else {
        before
    }
}

/// Returns whether a report precedes the default action of a signal. Returns `false` in a child
/// that does not report.
fn takes_place(signal: c_int) -> bool {
    PREPARED.load(Ordering::Relaxed)
        && handled().any(|handled| handled.number == signal)
        && reporting::reports()
}

/// The handler of all fatal signals.
unsafe extern "C" fn ends(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: actions and masks are valid, and the system passes a valid or null `info`.
    unsafe {
        let cause = match Fatal::from_number(signal) {
            Some(fatal) if !info.is_null() && (*info).si_code > 0 => fatal.cause,
            _ => Cause::Sender,
        };
        let by_instruction = cause != Cause::Sender;
        if reporting::reports()
            && !by_instruction
            && plimsoll_core::deferred_signals::put_off(signal)
        {
            return;
        }
        let errno = *libc::__errno_location();
        let mut default: libc::sigaction = zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        real_sigaction(signal, &default, std::ptr::null_mut());
        // A handler of the program that forks would wait for the report below it.
        let _blocked = BlockedSignals::new();
        if reporting::reports() {
            end_at_last(signal);
            on_own_stack(signal as usize);
        }
        *libc::__errno_location() = errno;
        // A repeated instruction raises the signal again.
        if cause != Cause::RepeatedInstruction {
            // The signal stays blocked until this handler returns, and takes effect then.
            libc::raise(signal);
        }
    }
}

/// Requests a second signal after [`PATIENCE`], and unblocks it.
unsafe fn end_at_last(signal: c_int) {
    // SAFETY: all structures are valid. The timer lasts for the rest of the process.
    unsafe {
        let mut event: libc::sigevent = zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        let mut timer = MaybeUninit::uninit();
        if libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, timer.as_mut_ptr()) == 0 {
            let mut when: libc::itimerspec = zeroed();
            when.it_value.tv_sec = PATIENCE;
            libc::timer_settime(timer.assume_init(), 0, &when, std::ptr::null_mut());
        }
        let mut mask = MaybeUninit::uninit();
        libc::sigemptyset(mask.as_mut_ptr());
        libc::sigaddset(mask.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, mask.as_ptr(), std::ptr::null_mut());
    }
}

/// Writes the report on a new stack of sufficient size.
unsafe fn on_own_stack(signal: usize) {
    extern "C" fn write(signal: *mut c_void) {
        /// The thread that writes the report; others wait for it.
        static WRITER: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: `pthread_self` has no preconditions.
        let me = unsafe { libc::pthread_self() } as usize;
        match WRITER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                reporting::abandon_what_is_under_way();
                let fatal = Fatal::from_number(signal as usize as c_int);
                reporting::report_blocked(fatal.map_or("signal", |fatal| fatal.name));
            }
            Err(writer) if writer == me => {}
            Err(_) => loop {
                // SAFETY: `pause` takes no arguments; it waits for a signal or the process's end.
                unsafe { libc::pause() };
            },
        }
    }
    // SAFETY: the new stack is mapped, large enough, aligned, and never unmapped. `write` takes a
    // signal in place of its argument, and does not unwind.
    unsafe {
        // A direct system call, since `mmap` would count the stack as the program's.
        let stack = libc::syscall(
            libc::SYS_mmap,
            0,
            STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if stack < 0 {
            return;
        }
        let top = stack as usize + STACK;
        arch::call_on_stack(top, write, signal as *mut c_void);
    }
}
