//! The names of system calls in which threads wait, and what their arguments mean.

use crate::arch;

/// Returns the name of a system call; `None` for one that is not listed.
pub(crate) fn name(number: i64) -> Option<&'static str> {
    listed(number).or_else(|| arch::legacy_call(number))
}

/// Defines the list of names, by the constants of their numbers.
macro_rules! list {
    ($($number:ident $name:ident),* $(,)?) => {
        fn listed(number: i64) -> Option<&'static str> {
            Some(match number {
                $(libc::$number => stringify!($name),)*
                SYS_EPOLL_PWAIT2 => "epoll_pwait2",
                SYS_FUTEX_WAITV => "futex_waitv",
                SYS_FUTEX_WAIT => "futex_wait",
                _ => return None,
            })
        }
    };
}

list! {
    SYS_read read, SYS_write write, SYS_readv readv, SYS_writev writev, SYS_pread64 pread64,
    SYS_pwrite64 pwrite64, SYS_preadv preadv, SYS_pwritev pwritev, SYS_openat openat,
    SYS_close close, SYS_fsync fsync, SYS_fdatasync fdatasync, SYS_flock flock, SYS_fcntl fcntl,
    SYS_ioctl ioctl, SYS_splice splice, SYS_sendfile sendfile, SYS_connect connect,
    SYS_accept accept, SYS_accept4 accept4, SYS_sendto sendto, SYS_sendmsg sendmsg,
    SYS_sendmmsg sendmmsg, SYS_recvfrom recvfrom, SYS_recvmsg recvmsg, SYS_recvmmsg recvmmsg,
    SYS_ppoll ppoll, SYS_pselect6 pselect6, SYS_epoll_pwait epoll_pwait,
    SYS_io_getevents io_getevents, SYS_io_uring_enter io_uring_enter, SYS_futex futex,
    SYS_nanosleep nanosleep, SYS_clock_nanosleep clock_nanosleep, SYS_wait4 wait4,
    SYS_waitid waitid, SYS_rt_sigtimedwait rt_sigtimedwait, SYS_rt_sigsuspend rt_sigsuspend,
    SYS_restart_syscall restart_syscall, SYS_msgrcv msgrcv, SYS_msgsnd msgsnd, SYS_semop semop,
    SYS_semtimedop semtimedop, SYS_mq_timedreceive mq_timedreceive,
    SYS_mq_timedsend mq_timedsend, SYS_mmap mmap, SYS_munmap munmap, SYS_mprotect mprotect,
    SYS_madvise madvise, SYS_brk brk, SYS_clone clone, SYS_clone3 clone3, SYS_execve execve,
    SYS_exit exit, SYS_exit_group exit_group, SYS_sched_yield sched_yield,
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
