//! x86-64.

/// Returns the state of a thread in a system call that newer processors lack; `None` for other calls.
pub(crate) fn legacy_call(call: i64) -> Option<&'static str> {
    Some(match call {
        libc::SYS_poll | libc::SYS_select => "poll",
        libc::SYS_epoll_wait => "epoll",
        libc::SYS_pause => "signal",
        libc::SYS_open => "syscall open",
        libc::SYS_vfork => "syscall vfork",
        libc::SYS_unlink => "syscall unlink",
        libc::SYS_rename => "syscall rename",
        _ => return None,
    })
}
