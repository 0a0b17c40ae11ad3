//! Signals that end the process: where the program has left one at its default, the report is
//! written first. Then the default takes place, so that whoever waits for the process sees what he
//! would have seen.
//!
//! The program sees nothing of this: it is told that the default is in force, and what it sets is.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, zeroed};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll::preload;

use crate::next::Next;

/// By default they end the process, some with a core dump.
const FATAL: [c_int; 15] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGUSR1,
    libc::SIGSEGV,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGXCPU,
];

/// After so many seconds, the process ends without a report: what the thread was about when the
/// signal came may be what the report waits for.
const PATIENCE: libc::time_t = 10;

/// The stack that the report is written on: the thread's may have no room for it.
const STACK: usize = 1 << 20;

type Sigaction = unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

static NEXT_SIGACTION: Next = Next::new("sigaction\0");
static NEXT_SIGNAL: Next = Next::new("signal\0");

/// Whether this is in force.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Takes the place of the default, where that is in force.
pub(crate) fn prepare() {
    for signal in FATAL {
        // SAFETY: valid actions.
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

fn ours() -> libc::sigaction {
    // SAFETY: integers and pointers, for which zero is a value.
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
        // SAFETY: the C library's function of that name; the caller's.
        Some(next) => unsafe {
            std::mem::transmute::<*mut c_void, Sigaction>(next)(signal, action, before)
        },
        None => -1,
    }
}

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    action: *const libc::sigaction,
    before: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the caller's: what is not null can be read, and written to.
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

/// # Safety
/// As C's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    let Some(next) = NEXT_SIGNAL.get() else {
        return libc::SIG_ERR;
    };
    let wanted = if takes_place(signal) && handler == libc::SIG_DFL {
        ends as *const () as usize
    } else {
        handler
    };
    // SAFETY: the C library's function of that name; the caller's.
    let before = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, usize) -> usize>(next)(
            signal, wanted,
        )
    };
    if is_ours(before) {
        libc::SIG_DFL
    } else {
        before
    }
}

/// Whether the default for a signal is to be preceded by a report: not in a child, which has none.
fn takes_place(signal: c_int) -> bool {
    PREPARED.load(Ordering::Relaxed) && FATAL.contains(&signal) && preload::reports()
}

/// The handler.
unsafe extern "C" fn ends(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: valid actions, masks and timers; the system passes valid information.
    unsafe {
        // What the processor reports, because of an instruction, comes again by itself.
        let by_instruction = matches!(
            signal,
            libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE | libc::SIGTRAP
        ) && !info.is_null()
            && (*info).si_code > 0;
        if preload::reports() && !by_instruction && preload::put_off(signal) {
            return;
        }
        let errno = *libc::__errno_location();
        let mut default: libc::sigaction = zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        real_sigaction(signal, &default, std::ptr::null_mut());
        if preload::reports() {
            end_at_last(signal);
            on_own_stack(signal as usize);
        }
        *libc::__errno_location() = errno;
        if !by_instruction {
            // Takes place when this returns, since the signal is blocked until then.
            libc::raise(signal);
        }
    }
}

/// Has the signal come once more when patience is at its end, and lets it.
unsafe fn end_at_last(signal: c_int) {
    // SAFETY: valid structures; the timer is for the rest of the process's life.
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

/// Writes the report on a stack with room for it.
unsafe fn on_own_stack(signal: usize) {
    extern "C" fn write(signal: usize) {
        /// The thread that writes; others wait for it.
        static WRITER: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: no arguments.
        let me = unsafe { libc::pthread_self() } as usize;
        match WRITER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                preload::abandon_what_is_under_way();
                let name = match signal as c_int {
                    libc::SIGTERM => "SIGTERM",
                    libc::SIGINT => "SIGINT",
                    libc::SIGHUP => "SIGHUP",
                    libc::SIGQUIT => "SIGQUIT",
                    libc::SIGABRT => "SIGABRT",
                    libc::SIGSEGV => "SIGSEGV",
                    libc::SIGPIPE => "SIGPIPE",
                    _ => "signal",
                };
                preload::report(name);
            }
            Err(writer) if writer == me => {}
            Err(_) => loop {
                // SAFETY: waits for a signal, or for the process to end.
                unsafe { libc::pause() };
            },
        }
    }
    // SAFETY: the new stack is large enough, mapped for good, and aligned; the old one is gone back
    // to.
    unsafe {
        // Not by `mmap`, which would count it as the program's.
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
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {write}",
            "mov rsp, r12",
            top = in(reg) stack as usize + STACK,
            write = sym write,
            in("rdi") signal,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}
