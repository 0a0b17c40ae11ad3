//! x86-64.

use plimsoll_unwind::registers::Registers;

/// `EM_X86_64`.
pub(crate) const MACHINE: u16 = 62;

/// The registers as the kernel copies them.
pub(crate) type Raw = libc::user_regs_struct;

/// Returns the registers that a walk needs.
pub(crate) fn registers(raw: &Raw) -> Registers {
    Registers {
        instruction: raw.rip,
        stack: raw.rsp,
        frame: raw.rbp,
        link: 0,
    }
}

/// Returns whether the thread is at the end of a system call.
pub(crate) fn is_in_call(raw: &Raw) -> bool {
    raw.orig_rax as i64 >= 0
}

/// Lets the kernel restart a system call that the stop interrupted. Some calls return `EINTR` for any wake-up, although
/// no signal is delivered. With `ERESTARTNOHAND` in its place, the kernel restarts the call, or returns `EINTR` if it
/// runs the handler of a signal first. Returns whether the registers were changed.
pub(crate) fn restart(raw: &mut Raw) -> bool {
    const RESTART_UNLESS_HANDLED: i64 = -514;
    let is_interrupted = is_in_call(raw) && raw.rax as i64 == -i64::from(libc::EINTR);
    if is_interrupted {
        raw.rax = RESTART_UNLESS_HANDLED as u64;
    }
    is_interrupted
}

/// Returns the name of a system call that newer processors lack.
pub(crate) fn legacy_call(number: i64) -> Option<&'static str> {
    Some(match number {
        libc::SYS_open => "open",
        libc::SYS_poll => "poll",
        libc::SYS_select => "select",
        libc::SYS_pause => "pause",
        libc::SYS_epoll_wait => "epoll_wait",
        libc::SYS_vfork => "vfork",
        _ => return None,
    })
}

/// Thread pointers are found.
pub(crate) const HAS_THREAD_POINTERS: bool = true;

/// Returns the thread pointer of the thread whose list of robust mutexes lies at `list`; `None` if it is not found. The C
/// libraries keep the list in their structure of the thread, which begins with its own address, where the pointer leads.
pub(crate) fn thread_pointer(list: u64, word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    /// No C library's structure is larger.
    const MAX_DISTANCE: u64 = 4096;
    let distances = (8..MAX_DISTANCE).step_by(8);
    let mut candidates = distances.map_while(|distance| list.checked_sub(distance));
    candidates.find(|&at| word(at) == Some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interrupted_call_is_restarted() {
        // SAFETY: zeros are valid registers.
        let mut raw: Raw = unsafe { std::mem::zeroed() };
        raw.orig_rax = libc::SYS_epoll_wait as u64;
        for result in [0, 1, -11, -512, -516] {
            raw.rax = result as u64;
            assert!(!restart(&mut raw) && raw.rax == result as u64);
        }
        raw.rax = -4_i64 as u64;
        assert!(restart(&mut raw) && raw.rax as i64 == -514);
        // In the program's own code, a register may have any value.
        (raw.orig_rax, raw.rax) = (u64::MAX, -4_i64 as u64);
        assert!(!restart(&mut raw) && !is_in_call(&raw));
    }
}
