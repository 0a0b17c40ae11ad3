//! Hook of system call filters (seccomp): observes the calls that install one.
//!
//! A filter may end the process for a call that Plimsoll makes. So before the kernel gets a filter, the calls that it
//! allows are determined, and all others are forbidden to Plimsoll: see [`filter`]. The restriction holds for the whole
//! process, even if the filter is for the calling thread only, and for its children and threads.
//!
//! Before that, Plimsoll does what it could not do later: it ends its threads, if the filter does not allow what
//! they need; and it ends CPU samples, if a signal handler could not return.
//!
//! Filters that are installed by an inline `syscall` instruction, or by a library whose calls are not interposed, are
//! not seen.

use std::ffi::c_long;
use std::slice;
use std::sync::OnceLock;
use std::time::Duration;

use plimsoll_interpose::Call;
use plimsoll_process::probe;
use plimsoll_sys::os::filter::{self, Calls, Named};
use plimsoll_sys::os::signals::BlockedSignals;
use plimsoll_sys::os::{self, clock, region::PAGE, syscall};

use crate::cpu;
use plimsoll_core::{internal_scope, internal_thread, stack};

/// Starts to observe filters.
pub fn start() {
    plimsoll_interpose::set_watcher(called);
    for number in [libc::SYS_prctl, libc::SYS_seccomp] {
        plimsoll_interpose::watch(number as u32);
    }
}

/// The time for which Plimsoll's threads may end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The calls that Plimsoll's threads make, besides those of [`filter::THREADS`], which include the server's.
const SERVER: [Named; 11] = [
    (libc::SYS_accept4, "accept4"),
    (libc::SYS_recvfrom, "recvfrom"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_write, "write"),
    (libc::SYS_close, "close"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_ppoll, "ppoll"),
    (libc::SYS_setsockopt, "setsockopt"),
    (libc::SYS_shutdown, "shutdown"),
    (libc::SYS_getpid, "getpid"),
];

/// A filter that a call installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filter {
    /// The address of the program; `None` for the strict mode.
    program: Option<usize>,
    /// Whether success is a descriptor, and not 0.
    has_descriptor: bool,
}

impl Filter {
    /// Returns the filter that a call installs; `None` if it installs none.
    fn from_number(number: c_long, arguments: &[usize; 6]) -> Option<Self> {
        let [operation, first, second, ..] = *arguments;
        let strict = Self {
            program: None,
            has_descriptor: false,
        };
        match (number, operation as i32, first) {
            (libc::SYS_prctl, libc::PR_SET_SECCOMP, 1) => Some(strict),
            (libc::SYS_prctl, libc::PR_SET_SECCOMP, 2) => Some(Self {
                program: Some(second),
                ..strict
            }),
            (libc::SYS_seccomp, 0, _) => Some(strict),
            (libc::SYS_seccomp, 1, flags) => Some(Self {
                program: Some(second),
                has_descriptor: flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as usize != 0,
            }),
            _ => None,
        }
    }

    /// Returns the calls that the filter allows; `None` if its program cannot be read, for which the kernel refuses
    /// it. A process whose memory cannot be checked has no call left.
    fn allowed(&self) -> Option<Calls> {
        let Some(program) = self.program else {
            return Some(Calls::NONE);
        };
        if !filter::allows(libc::SYS_rt_sigprocmask) {
            return Some(Calls::NONE);
        }
        let is_readable = |start: usize, length: usize| {
            let last = start.checked_add(length.max(1) - 1);
            start != 0
                && last.is_some_and(|last| {
                    (start / PAGE..=last / PAGE).all(|page| probe::readable(page * PAGE))
                })
        };
        if !is_readable(program, size_of::<libc::sock_fprog>()) {
            return None;
        }
        // SAFETY: the range is readable. The program may be anywhere, and at any address.
        let libc::sock_fprog { len, filter } =
            unsafe { (program as *const libc::sock_fprog).read_unaligned() };
        let length = usize::from(len);
        if !filter.is_aligned() {
            return Some(Calls::NONE);
        }
        if !is_readable(filter as usize, length * size_of::<libc::sock_filter>()) {
            return None;
        }
        // SAFETY: the range is readable and aligned. The program does not change it while the kernel reads it.
        Some(Calls::allowed_by(unsafe {
            slice::from_raw_parts(filter, length)
        }))
    }

    fn is_installed_by(&self, result: isize) -> bool {
        result == 0 || result > 0 && self.has_descriptor
    }
}

/// The functions of a preloaded library that filters concern.
pub struct Observer {
    /// Called before a filter, with the calls that it allows. Returns those that Plimsoll goes on to make.
    pub before: fn(&Calls) -> Calls,
    /// Called after the kernel has refused the filter.
    pub refused: fn(),
    /// Called before other calls by which a process confines itself.
    pub confined: fn(),
    /// Called before the end of the process, or with `true` of the calling thread, if that is by `syscall`.
    pub ends: fn(bool),
}

/// System calls by which a process confines itself, if it makes them by `syscall`.
const CONFINING: [c_long; 9] = [
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_landlock_restrict_self,
    libc::SYS_setrlimit,
];

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Registers these functions. A later call has no effect.
pub fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
    for number in CONFINING
        .into_iter()
        .chain([libc::SYS_exit, libc::SYS_exit_group])
    {
        plimsoll_interpose::watch(number as u32);
    }
}

/// Makes the call. If it installs a filter, prepares for that before.
unsafe extern "C" fn called(call: &Call) -> isize {
    // The C library passes an `int`, whose upper half is undefined.
    let number = call.number as u32 as c_long;
    // SAFETY: the number and arguments are those of the program's own call, unmodified.
    let forward = || unsafe { syscall::forward(number, call.arguments) };
    if let Some(observer) = OBSERVER.get() {
        match number {
            libc::SYS_exit | libc::SYS_exit_group => (observer.ends)(number == libc::SYS_exit),
            number if CONFINING.contains(&number) => (observer.confined)(),
            _ => {}
        }
    }
    let Some(filter) = Filter::from_number(number, &call.arguments) else {
        return forward();
    };
    let Some(allowed) = filter.allowed() else {
        return forward();
    };
    let before = prepare(&filter, allowed.and(&filter::current()));
    let result = forward();
    if !filter.is_installed_by(result) {
        undo(&before);
    }
    result
}

/// The state to which [`undo`] returns.
struct Before {
    allowed: Calls,
    stopped_clocks: bool,
}

fn prepare(filter: &Filter, allowed: Calls) -> Before {
    // Dropped before the restriction, which may forbid that.
    let blocked = BlockedSignals::new();
    let _own = internal_scope::scope();
    os::keep_process_id(os::process_id());
    let allowed = OBSERVER
        .get()
        .map_or(allowed, |observer| (observer.before)(&allowed));
    let has = |calls: &[Named]| calls.iter().all(|&(number, _)| allowed.contains(number));
    // They list the threads of the process as well, to end with the last one.
    let suffice = has(&filter::THREADS) && has(&filter::FILES) && has(&SERVER);
    if !suffice {
        internal_thread::end_all(PATIENCE);
    }
    plimsoll_core::wakeup::wake();
    cpu::before_filter(&allowed);
    // Later, files cannot be read: the names of code that is loaded by now are known.
    stack::refresh_modules();
    let stopped_clocks = clock::stop_if_forbidden(&allowed, filter.program.is_none());
    drop(blocked);
    Before {
        allowed: filter::restrict_to(&allowed),
        stopped_clocks,
    }
}

/// Returns to the state before [`prepare`], because the kernel refused the filter. Threads that have ended stay away.
fn undo(before: &Before) {
    filter::restore(&before.allowed);
    if before.stopped_clocks {
        clock::go_on();
    }
    if let Some(observer) = OBSERVER.get() {
        let _own = internal_scope::scope();
        (observer.refused)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRCTL: c_long = libc::SYS_prctl;
    const SECCOMP: c_long = libc::SYS_seccomp;

    #[test]
    fn calls_that_install_a_filter_are_recognised() {
        let of = |number, arguments: [usize; 3]| {
            let [a, b, c] = arguments;
            let filter = Filter::from_number(number, &[a, b, c, 0, 0, 0])?;
            Some((filter.program, filter.has_descriptor))
        };
        let set = libc::PR_SET_SECCOMP as usize;
        assert_eq!(of(PRCTL, [set, 1, 7]), Some((None, false)));
        assert_eq!(of(PRCTL, [set, 2, 7]), Some((Some(7), false)));
        assert_eq!(of(PRCTL, [set | 1 << 40, 2, 7]), Some((Some(7), false)));
        assert_eq!(of(PRCTL, [set, 3, 7]), None);
        assert_eq!(of(PRCTL, [libc::PR_GET_SECCOMP as usize, 2, 7]), None);
        assert_eq!(of(SECCOMP, [0, 0, 0]), Some((None, false)));
        assert_eq!(of(SECCOMP, [1, 0, 7]), Some((Some(7), false)));
        assert_eq!(of(SECCOMP, [1, 1, 7]), Some((Some(7), false)));
        assert_eq!(of(SECCOMP, [1, 8, 7]), Some((Some(7), true)));
        // Which actions exist.
        assert_eq!(of(SECCOMP, [2, 0, 7]), None);
        assert_eq!(of(libc::SYS_getpid, [set, 2, 7]), None);
    }

    #[test]
    fn a_program_that_cannot_be_read_is_left_to_the_kernel() {
        let filter = |program: usize| Filter {
            program: Some(program),
            has_descriptor: false,
        };
        let forbidden = os::pages::reserve(PAGE, 0).unwrap();
        for program in [0, 8, forbidden, usize::MAX - 7, usize::MAX] {
            assert_eq!(filter(program).allowed(), None, "{program:#x}");
        }
        let instructions = [libc::sock_filter {
            code: libc::BPF_RET as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        }];
        let named = |len, filter: usize| libc::sock_fprog {
            len,
            filter: filter as *mut libc::sock_filter,
        };
        let at = instructions.as_ptr() as usize;
        let allowed = |program: libc::sock_fprog| filter(&raw const program as usize).allowed();
        assert_eq!(allowed(named(1, at)), Some(Calls::ALL));
        assert_eq!(allowed(named(1, 0)), None);
        assert_eq!(allowed(named(4096, forbidden - 8)), None);
        assert_eq!(allowed(named(1, at + 1)), Some(Calls::NONE));
        assert_eq!(filter(0).program, Some(0));
    }

    #[test]
    fn a_filter_with_a_listener_succeeds_with_a_descriptor() {
        let filter = |has_descriptor| Filter {
            program: Some(8),
            has_descriptor,
        };
        assert!(filter(false).is_installed_by(0) && filter(true).is_installed_by(5));
        // The number of a thread that could not be synchronized.
        assert!(!filter(false).is_installed_by(5) && !filter(true).is_installed_by(-1));
    }
}
