//! aarch64.

use std::ptr::without_provenance_mut;

pub(crate) const NOP: &[u8] = &0xd503_201f_u32.to_le_bytes();
pub(crate) const BREAKPOINT: &[u8] = &0xd420_0000_u32.to_le_bytes();
pub(crate) const ARGUMENTS: [&str; 3] = ["8@x0", "8@x1", "8@x2"];

/// The set of general registers.
const GENERAL: *mut u8 = without_provenance_mut(libc::NT_PRSTATUS as usize);

pub(crate) fn stopped_at(thread: libc::pid_t) -> (u64, [u64; 3]) {
    let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
    let mut part = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<libc::user_regs_struct>(),
    };
    // SAFETY: the kernel writes the registers of a stopped thread, or returns an error. The thread
    // stops at the breakpoint, which replaces all of the probe's instruction: it continues behind.
    unsafe {
        let done = libc::ptrace(libc::PTRACE_GETREGSET, thread, GENERAL, &raw mut part);
        assert_eq!(done, 0, "registers: {}", std::io::Error::last_os_error());
        let mut registers = registers.assume_init();
        let address = registers.pc;
        registers.pc += BREAKPOINT.len() as u64;
        part.iov_base = (&raw mut registers).cast();
        let done = libc::ptrace(libc::PTRACE_SETREGSET, thread, GENERAL, &raw mut part);
        assert_eq!(done, 0, "registers: {}", std::io::Error::last_os_error());
        let [first, second, third, ..] = registers.regs;
        (address, [first, second, third])
    }
}
