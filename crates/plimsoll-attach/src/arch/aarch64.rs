//! aarch64.

use plimsoll_unwind::registers::Registers;

/// `EM_AARCH64`.
pub(crate) const MACHINE: u16 = 183;

/// The registers as the kernel copies them.
pub(crate) type Raw = libc::user_regs_struct;

/// Returns the registers that a walk needs.
pub(crate) fn registers(raw: &Raw) -> Registers {
    Registers {
        instruction: raw.pc,
        stack: raw.sp,
        frame: raw.regs[29],
        link: raw.regs[30],
    }
}

/// Returns false: the registers do not show it.
pub(crate) fn is_in_call(_raw: &Raw) -> bool {
    false
}

/// Returns false: the kernel decides on a restart before it stops the thread.
pub(crate) fn restart(_raw: &mut Raw) -> bool {
    false
}

/// Returns `None`: the processor has no such calls.
pub(crate) fn legacy_call(_number: i64) -> Option<&'static str> {
    None
}

/// Thread pointers are not found.
pub(crate) const HAS_THREAD_POINTERS: bool = false;

/// Returns `None`: it lies at a distance from the list that differs between versions of the C library.
pub(crate) fn thread_pointer(_list: u64, _word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    None
}
