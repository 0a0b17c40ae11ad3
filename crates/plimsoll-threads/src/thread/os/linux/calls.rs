//! System calls in which threads wait.

use super::arch;

/// The activity of a thread that is in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Waiting for another thread; the stack shows for what.
    Futex,
    /// A word for the activity, or else the name of the call.
    Plainly(&'static str),
}

/// Returns the activity of a thread that is in the system call of this number.
pub fn doing(call: i64) -> Doing {
    let word = match call {
        libc::SYS_futex | SYS_FUTEX_WAIT | SYS_FUTEX_WAITV => return Doing::Futex,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => "sleep",
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_splice
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_io_getevents
        | libc::SYS_io_uring_enter => "io",
        libc::SYS_ppoll | libc::SYS_pselect6 => "poll",
        libc::SYS_epoll_pwait | SYS_EPOLL_PWAIT2 => "epoll",
        libc::SYS_wait4 | libc::SYS_waitid => "wait",
        libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => "signal",
        other => arch::legacy_call(other).unwrap_or_else(|| name(other)),
    };
    Doing::Plainly(word)
}

/// Numbers that some headers lack.
const SYS_FUTEX_WAITV: i64 = 449;
const SYS_FUTEX_WAIT: i64 = 455;
const SYS_EPOLL_PWAIT2: i64 = 441;

/// Returns the name of a call that can take long.
fn name(call: i64) -> &'static str {
    match call {
        libc::SYS_openat => "syscall openat",
        libc::SYS_close => "syscall close",
        libc::SYS_flock => "syscall flock",
        libc::SYS_fcntl => "syscall fcntl",
        libc::SYS_ioctl => "syscall ioctl",
        libc::SYS_fallocate => "syscall fallocate",
        libc::SYS_sync => "syscall sync",
        libc::SYS_syncfs => "syscall syncfs",
        libc::SYS_mmap => "syscall mmap",
        libc::SYS_munmap => "syscall munmap",
        libc::SYS_mprotect => "syscall mprotect",
        libc::SYS_madvise => "syscall madvise",
        libc::SYS_clone => "syscall clone",
        libc::SYS_clone3 => "syscall clone3",
        libc::SYS_execve => "syscall execve",
        libc::SYS_exit => "syscall exit",
        libc::SYS_exit_group => "syscall exit_group",
        libc::SYS_msgrcv => "syscall msgrcv",
        libc::SYS_msgsnd => "syscall msgsnd",
        libc::SYS_semop => "syscall semop",
        libc::SYS_semtimedop => "syscall semtimedop",
        libc::SYS_mq_timedreceive => "syscall mq_timedreceive",
        libc::SYS_mq_timedsend => "syscall mq_timedsend",
        libc::SYS_sched_yield => "syscall sched_yield",
        libc::SYS_membarrier => "syscall membarrier",
        libc::SYS_userfaultfd => "syscall userfaultfd",
        libc::SYS_ptrace => "syscall ptrace",
        libc::SYS_getrandom => "syscall getrandom",
        libc::SYS_statx => "syscall statx",
        libc::SYS_getdents64 => "syscall getdents64",
        libc::SYS_unlinkat => "syscall unlinkat",
        libc::SYS_renameat2 => "syscall renameat2",
        libc::SYS_copy_file_range => "syscall copy_file_range",
        _ => "syscall",
    }
}
