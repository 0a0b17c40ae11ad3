//! Filters that the process had before its program began.
//!
//! Their rules cannot be read. So each call is tried in a child of the process, with arguments with which it has no
//! effect: a child that is ended shows a call that would end the process. The children are made by a direct system
//! call, and execute only the trials.

use std::ffi::c_long;

use super::Calls;
use crate::arch::system_call;
use crate::os::region::PAGE;
use crate::os::{files, pages};
use crate::primitives::{AtomicUsize, Ordering};

/// The calling thread's filters and its process, from `/proc/self/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The number of filters.
    pub filters: u32,
    /// The number of the process in its namespace; 0 if it is unknown.
    pub process: u32,
}

/// Reads the status; `None` if that is not possible. For the start of a program: the loader made the same calls to load
/// it, so no filter forbids them.
pub fn status() -> Option<Status> {
    let mut status = [0; 4096];
    parse(files::read_into(c"/proc/self/status", &mut status)?)
}

fn parse(status: &[u8]) -> Option<Status> {
    let values = |name: &[u8]| {
        let mut lines = status.split(|&byte| byte == b'\n');
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok()
    };
    let value = |name: &[u8]| -> Option<u32> { values(name)?.trim().parse().ok() };
    let filters = match value(b"Seccomp:")? {
        0 => 0,
        // Kernels before 5.9 report no number.
        _ => value(b"Seccomp_filters:").unwrap_or(1).max(1),
    };
    // The numbers in all namespaces, the innermost last.
    let process = values(b"NSpid:").and_then(|numbers| numbers.split_whitespace().last());
    Some(Status {
        filters,
        process: process.and_then(|number| number.parse().ok()).unwrap_or(0),
    })
}

/// Not a descriptor, a process, an operation or a set of flags.
const NONE: usize = u32::MAX as usize;

/// Calls with arguments with which each fails, or does nothing.
const TRIALS: [(c_long, [usize; 3]); 66] = [
    (libc::SYS_membarrier, [0, 0, 0]),
    (libc::SYS_accept4, [NONE, 0, 0]),
    (libc::SYS_bind, [NONE, 0, 0]),
    (libc::SYS_clock_gettime, [NONE, 0, 0]),
    (libc::SYS_clock_nanosleep, [NONE, 0, 0]),
    // With a structure that is too small.
    (libc::SYS_clone3, [0, 0, 0]),
    (libc::SYS_close, [NONE, 0, 0]),
    (libc::SYS_connect, [NONE, 0, 0]),
    (libc::SYS_fallocate, [NONE, 0, 0]),
    (libc::SYS_fcntl, [NONE, 0, 0]),
    (libc::SYS_fstat, [NONE, 0, 0]),
    (libc::SYS_fsync, [NONE, 0, 0]),
    (libc::SYS_ftruncate, [NONE, 0, 0]),
    (libc::SYS_futex, [0, 127, 0]),
    (libc::SYS_get_robust_list, [NONE, 0, 0]),
    (libc::SYS_getdents64, [NONE, 0, 0]),
    (libc::SYS_getpid, [0, 0, 0]),
    (libc::SYS_getrandom, [0, 0, 0]),
    (libc::SYS_getrusage, [NONE, 0, 0]),
    (libc::SYS_gettid, [0, 0, 0]),
    (libc::SYS_getuid, [0, 0, 0]),
    (libc::SYS_ioctl, [NONE, 0, 0]),
    (libc::SYS_listen, [NONE, 0, 0]),
    (libc::SYS_lseek, [NONE, 0, 0]),
    (libc::SYS_madvise, [0, 0, 0]),
    (libc::SYS_mincore, [1, 0, 0]),
    (libc::SYS_mmap, [0, 0, 0]),
    (libc::SYS_mprotect, [0, 0, 0]),
    (libc::SYS_mremap, [1, 0, 0]),
    (libc::SYS_munmap, [1, 0, 0]),
    (libc::SYS_newfstatat, [NONE, 0, 0]),
    (libc::SYS_openat, [NONE, 0, 0]),
    (libc::SYS_ppoll, [0, 0, 1]),
    (libc::SYS_prctl, [NONE, 0, 0]),
    (libc::SYS_pread64, [NONE, 0, 0]),
    (libc::SYS_prlimit64, [0, NONE, 0]),
    (libc::SYS_process_vm_readv, [NONE, 0, 0]),
    (libc::SYS_read, [NONE, 0, 0]),
    (libc::SYS_readlinkat, [NONE, 0, 0]),
    (libc::SYS_recvfrom, [NONE, 0, 0]),
    (libc::SYS_renameat2, [NONE, 0, NONE]),
    (libc::SYS_rt_sigaction, [0, 0, 0]),
    (libc::SYS_rt_sigpending, [0, NONE, 0]),
    (libc::SYS_rt_sigprocmask, [0, 0, 0]),
    (libc::SYS_rt_sigtimedwait, [0, 0, 0]),
    (libc::SYS_rt_tgsigqueueinfo, [NONE, NONE, 0]),
    (libc::SYS_sched_getaffinity, [0, 0, 0]),
    (libc::SYS_sched_setaffinity, [NONE, 0, 0]),
    (libc::SYS_sched_yield, [0, 0, 0]),
    (libc::SYS_sendto, [NONE, 0, 0]),
    (libc::SYS_setsockopt, [NONE, 0, 0]),
    (libc::SYS_shutdown, [NONE, 0, 0]),
    (libc::SYS_socket, [NONE, 0, 0]),
    (libc::SYS_socketpair, [NONE, 0, 0]),
    (libc::SYS_statx, [NONE, 0, 0]),
    (libc::SYS_tgkill, [NONE, NONE, 0]),
    (libc::SYS_timer_create, [NONE, 0, 0]),
    (libc::SYS_timer_delete, [NONE, 0, 0]),
    (libc::SYS_timer_gettime, [NONE, 0, 0]),
    (libc::SYS_timer_settime, [NONE, 0, 0]),
    (libc::SYS_fchmod, [NONE, 0, 0]),
    (libc::SYS_getsockname, [NONE, 0, 0]),
    (libc::SYS_write, [NONE, 0, 0]),
    // Names in memory that cannot be read.
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, [1, 0, 0]),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_mkdirat, [NONE, 1, 0]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_rename, [1, 1, 0]),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_renameat, [NONE, 1, NONE]),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_unlink, [1, 0, 0]),
    #[cfg(not(target_arch = "x86_64"))]
    (libc::SYS_unlinkat, [NONE, 1, 0]),
];

/// The place after these trials: the return from a signal handler.
const HANDLER: usize = TRIALS.len();

/// The calls by which a child has its own signal handler called.
const SIGNALLING: [c_long; 5] = [
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_tgkill,
];

/// The last place: the end of a thread, by which a child ends.
const END: usize = HANDLER + 1;

/// The signal in the status of a process that one has ended.
const SIGNAL: i32 = 0x7f;

/// Tries the calls that Plimsoll makes. Returns all calls but those that ended a child; none if no child can be made.
/// Takes as long as one fork, and another for each of these calls. Neither allocates nor locks.
pub fn allowed() -> Calls {
    let Some(page) = pages::map_shared(PAGE) else {
        return Calls::NONE;
    };
    // SAFETY: the page is mapped and zero, and is unmapped only below.
    let at = unsafe { &*(page as *const AtomicUsize) };
    let mut allowed = Calls::ALL;
    loop {
        let Some(status) = child_tries(at, &allowed) else {
            allowed = Calls::NONE;
            break;
        };
        let was_ended = status & SIGNAL != 0;
        match at.fetch_add(1, Ordering::Relaxed) {
            reached @ 0..HANDLER => allowed = allowed.without(TRIALS[reached].0),
            HANDLER => allowed = allowed.without(libc::SYS_rt_sigreturn),
            _ if was_ended => allowed = allowed.without(libc::SYS_exit),
            _ => {}
        }
        if at.load(Ordering::Relaxed) > END {
            break;
        }
    }
    // SAFETY: the page was mapped above, and no child is left.
    unsafe { pages::unmap(page, PAGE) };
    allowed
}

/// Makes a child that makes the trials from `at` on, which it advances, and ends by `exit`. It ends before the trial of a
/// handler if it must not make the calls for that. Returns the status of its end; `None` if no child can be made.
fn child_tries(at: &AtomicUsize, allowed: &Calls) -> Option<i32> {
    let mut status = 0;
    /// The option for a child that sends no signal when it ends.
    const ANY_CHILD: usize = libc::__WALL as usize;
    // SAFETY: without flags, the child has a copy of the memory, and no signal is sent at its end. It makes system
    // calls without effect only, and ends.
    unsafe {
        let child = system_call(libc::SYS_clone, [0; 6]);
        if child == 0 {
            let no_core = libc::rlimit {
                rlim_cur: 1,
                rlim_max: 1,
            };
            let limit = &raw const no_core as usize;
            // A core file would be of no use, and 1 keeps a program from getting it, too.
            system_call(
                libc::SYS_prlimit64,
                [0, libc::RLIMIT_CORE as usize, limit, 0, 0, 0],
            );
            while let Some((number, [a, b, c])) = TRIALS.get(at.load(Ordering::Relaxed)) {
                system_call(*number, [*a, *b, *c, 0, 0, 0]);
                at.fetch_add(1, Ordering::Relaxed);
            }
            let may_signal = SIGNALLING.iter().all(|&number| allowed.contains(number));
            if at.load(Ordering::Relaxed) == HANDLER && may_signal {
                signal_itself();
                at.store(END, Ordering::Relaxed);
            }
            if at.load(Ordering::Relaxed) == END {
                system_call(libc::SYS_exit, [0; 6]);
            }
            loop {
                system_call(libc::SYS_exit_group, [0; 6]);
            }
        }
        if child > 0 {
            let status = &raw mut status as usize;
            let arguments = [child as usize, status, ANY_CHILD, 0, 0, 0];
            while system_call(libc::SYS_wait4, arguments) == -(libc::EINTR as isize) {}
        }
        (child > 0).then_some(status)
    }
}

extern "C" fn return_at_once(_: i32) {}

/// Sends the calling process, of one thread, a signal with a handler that only returns.
fn signal_itself() {
    const UNBLOCK: usize = libc::SIG_UNBLOCK as usize;
    const SIGNAL: i32 = libc::SIGUSR1;
    let mask: u64 = 1 << (SIGNAL - 1);
    // SAFETY: all zeros is a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = return_at_once as *const () as usize;
    // SAFETY: the action and the mask are valid for the calls, and the handler only returns.
    unsafe {
        libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
        let set = &raw const mask as usize;
        system_call(libc::SYS_rt_sigprocmask, [UNBLOCK, set, 0, 8, 0, 0]);
        let process = system_call(libc::SYS_getpid, [0; 6]) as usize;
        let thread = system_call(libc::SYS_gettid, [0; 6]) as usize;
        system_call(
            libc::SYS_tgkill,
            [process, thread, SIGNAL as usize, 0, 0, 0],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_filters_and_the_process_are_read() {
        let filters = |status: &[u8]| parse(status).map(|status| status.filters);
        assert_eq!(
            filters(b"Name:\tx\nSeccomp:\t0\nSeccomp_filters:\t0\n"),
            Some(0)
        );
        assert_eq!(filters(b"Seccomp:\t2\nSeccomp_filters:\t3\n"), Some(3));
        assert_eq!(filters(b"Seccomp:\t2\n"), Some(1));
        assert_eq!(filters(b"Seccomp:\t1\nSeccomp_filters:\t0\n"), Some(1));
        assert_eq!(filters(b"Name:\tx\n"), None);
        let nested = parse(b"Pid:\t71\nNSpid:\t71\t7\nSeccomp:\t0\n");
        assert_eq!(nested.map(|status| status.process), Some(7));
        let own = status().unwrap();
        let text = std::fs::read("/proc/thread-self/status").unwrap();
        assert_eq!(Some(own.filters), filters(&text));
        assert_eq!(own.process, std::process::id());
    }

    #[test]
    fn trials_are_of_different_calls_and_harm_no_process() {
        let mut numbers = TRIALS.map(|(number, _)| number);
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]));
        assert_eq!(allowed(), Calls::ALL);
    }

    #[test]
    fn a_call_that_ends_the_process_is_found_and_one_that_fails_is_allowed() {
        use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
        let instruction = |code: u32, k: u32, jt, jf| {
            let code = code as u16;
            sock_filter { code, jt, jf, k }
        };
        let equals =
            |number: c_long, jt| instruction(BPF_JMP | BPF_JEQ | BPF_K, number as u32, jt, 0);
        let end = |result| instruction(BPF_RET | BPF_K, result, 0, 0);
        let mut program = [
            instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
            equals(libc::SYS_membarrier, 7),
            equals(libc::SYS_rt_sigreturn, 6),
            equals(libc::SYS_clone3, 5),
            equals(libc::SYS_exit, 4),
            equals(libc::SYS_timer_settime, 3),
            equals(libc::SYS_getuid, 3),
            equals(libc::SYS_getrandom, 3),
            end(libc::SECCOMP_RET_ALLOW),
            end(libc::SECCOMP_RET_KILL_PROCESS),
            end(libc::SECCOMP_RET_TRAP),
            end(libc::SECCOMP_RET_ERRNO | 1),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the child makes system calls only, and ends.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let installed = libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const filter) == 0;
                let expected = Calls::ALL
                    .without(libc::SYS_membarrier)
                    .without(libc::SYS_rt_sigreturn)
                    .without(libc::SYS_clone3)
                    .without(libc::SYS_exit)
                    .without(libc::SYS_timer_settime)
                    .without(libc::SYS_getuid);
                let is_right = installed
                    && status().is_some_and(|status| status.filters == 1)
                    && allowed() == expected;
                libc::_exit(i32::from(!is_right));
            }
            let mut status = 1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert_eq!(status, 0);
    }
}
