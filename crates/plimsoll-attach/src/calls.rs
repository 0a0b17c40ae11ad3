//! The names of system calls in which threads wait, and what their arguments mean.

use crate::arch;

/// Returns the name of a system call; `None` for one that is not listed.
pub(crate) fn name(number: i64) -> Option<&'static str> {
    Some(match number {
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_readv => "readv",
        libc::SYS_writev => "writev",
        libc::SYS_pread64 => "pread64",
        libc::SYS_pwrite64 => "pwrite64",
        libc::SYS_preadv => "preadv",
        libc::SYS_pwritev => "pwritev",
        libc::SYS_openat => "openat",
        libc::SYS_close => "close",
        libc::SYS_fsync => "fsync",
        libc::SYS_fdatasync => "fdatasync",
        libc::SYS_flock => "flock",
        libc::SYS_fcntl => "fcntl",
        libc::SYS_ioctl => "ioctl",
        libc::SYS_splice => "splice",
        libc::SYS_sendfile => "sendfile",
        libc::SYS_connect => "connect",
        libc::SYS_accept => "accept",
        libc::SYS_accept4 => "accept4",
        libc::SYS_sendto => "sendto",
        libc::SYS_sendmsg => "sendmsg",
        libc::SYS_sendmmsg => "sendmmsg",
        libc::SYS_recvfrom => "recvfrom",
        libc::SYS_recvmsg => "recvmsg",
        libc::SYS_recvmmsg => "recvmmsg",
        libc::SYS_ppoll => "ppoll",
        libc::SYS_pselect6 => "pselect6",
        libc::SYS_epoll_pwait => "epoll_pwait",
        SYS_EPOLL_PWAIT2 => "epoll_pwait2",
        libc::SYS_io_getevents => "io_getevents",
        libc::SYS_io_uring_enter => "io_uring_enter",
        libc::SYS_futex => "futex",
        SYS_FUTEX_WAITV => "futex_waitv",
        SYS_FUTEX_WAIT => "futex_wait",
        libc::SYS_nanosleep => "nanosleep",
        libc::SYS_clock_nanosleep => "clock_nanosleep",
        libc::SYS_wait4 => "wait4",
        libc::SYS_waitid => "waitid",
        libc::SYS_rt_sigtimedwait => "rt_sigtimedwait",
        libc::SYS_rt_sigsuspend => "rt_sigsuspend",
        libc::SYS_restart_syscall => "restart_syscall",
        libc::SYS_msgrcv => "msgrcv",
        libc::SYS_msgsnd => "msgsnd",
        libc::SYS_semop => "semop",
        libc::SYS_semtimedop => "semtimedop",
        libc::SYS_mq_timedreceive => "mq_timedreceive",
        libc::SYS_mq_timedsend => "mq_timedsend",
        libc::SYS_mmap => "mmap",
        libc::SYS_munmap => "munmap",
        libc::SYS_mprotect => "mprotect",
        libc::SYS_madvise => "madvise",
        libc::SYS_brk => "brk",
        libc::SYS_clone => "clone",
        libc::SYS_clone3 => "clone3",
        libc::SYS_execve => "execve",
        libc::SYS_exit => "exit",
        libc::SYS_exit_group => "exit_group",
        libc::SYS_sched_yield => "sched_yield",
        _ => return arch::legacy_call(number),
    })
}

/// Calls of newer kernels, which have the same number on all processors.
const SYS_EPOLL_PWAIT2: i64 = 441;
const SYS_FUTEX_WAITV: i64 = 449;
const SYS_FUTEX_WAIT: i64 = 455;

/// The calls whose first argument is the descriptor of what they wait for.
const WITH_DESCRIPTOR: &str = "read write readv writev pread64 pwrite64 connect accept accept4 sendto sendmsg recvfrom \
    recvmsg epoll_wait epoll_pwait epoll_pwait2 flock fsync fdatasync ioctl io_uring_enter";

/// Returns whether the first argument of a call is the descriptor of what it waits for.
pub(crate) fn takes_descriptor(number: i64) -> bool {
    let mut names = WITH_DESCRIPTOR.split_ascii_whitespace();
    name(number).is_some_and(|name| names.any(|other| other == name))
}

/// A wait for a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FutexWait {
    /// The address of the word.
    pub(crate) address: u64,
    /// Whether the word contains the thread number of the owner, by the kernel's protocol.
    pub(crate) has_owner: bool,
}

/// Returns the futex for which a thread waits in a call; `None` for other calls, and for a wait for several.
pub(crate) fn futex(number: i64, arguments: [u64; 6]) -> Option<FutexWait> {
    const LOCK_PI_2: i32 = 13;
    let operation = match number {
        SYS_FUTEX_WAIT => libc::FUTEX_WAIT,
        libc::SYS_futex => arguments[1] as i32 & libc::FUTEX_CMD_MASK,
        _ => return None,
    };
    let has_owner = match operation {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAIT_REQUEUE_PI => false,
        libc::FUTEX_LOCK_PI | LOCK_PI_2 => true,
        _ => return None,
    };
    let address = arguments[0];
    Some(FutexWait { address, has_owner })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_a_futex_are_recognized_by_their_operation() {
        const PRIVATE: u64 = 128;
        let wait = |operation: u64| futex(libc::SYS_futex, [64, operation, 2, 0, 0, 0]);
        let plain = FutexWait {
            address: 64,
            has_owner: false,
        };
        assert_eq!(wait(PRIVATE), Some(plain));
        assert_eq!(wait(9 | PRIVATE | 256), Some(plain));
        assert!(wait(6).is_some_and(|wait| wait.has_owner));
        assert_eq!(wait(1), None, "a thread that wakes others");
        assert_eq!(futex(libc::SYS_read, [64; 6]), None);
    }

    #[test]
    fn calls_have_names() {
        assert_eq!(name(libc::SYS_futex), Some("futex"));
        assert_eq!(name(100_000), None);
        assert!(takes_descriptor(libc::SYS_read) && !takes_descriptor(libc::SYS_futex));
    }
}
