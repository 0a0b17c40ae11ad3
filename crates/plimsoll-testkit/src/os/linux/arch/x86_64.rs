//! x86-64.

use std::ptr::null_mut;

pub(crate) const NOP: &[u8] = &[0x90];
pub(crate) const BREAKPOINT: &[u8] = &[0xcc];
pub(crate) const ARGUMENTS: [&str; 3] = ["8@%rdi", "8@%rsi", "8@%rdx"];

pub(crate) fn stopped_at(thread: libc::pid_t) -> (u64, [u64; 3]) {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the kernel writes the registers of a stopped thread, or returns an error.
    let registers = unsafe {
        let done = libc::ptrace(
            libc::PTRACE_GETREGS,
            thread,
            null_mut::<u8>(),
            registers.as_mut_ptr(),
        );
        assert_eq!(done, 0, "registers: {}", std::io::Error::last_os_error());
        registers.assume_init()
    };
    // The thread stops behind the breakpoint, which replaces all of the probe's instruction.
    let address = registers.rip - BREAKPOINT.len() as u64;
    (address, [registers.rdi, registers.rsi, registers.rdx])
}
