//! Every other processor: stacks are not read, and each process is refused.

use plimsoll_unwind::registers::Registers;

/// No processor has this number.
pub(crate) const MACHINE: u16 = 0;

/// No registers.
pub(crate) type Raw = [u64; 1];

/// Returns zeros, with which each walk ends at once.
pub(crate) fn registers(_raw: &Raw) -> Registers {
    Registers {
        instruction: 0,
        stack: 0,
        frame: 0,
        link: 0,
    }
}

/// Returns false.
pub(crate) fn is_in_call(_raw: &Raw) -> bool {
    false
}

/// Returns false.
pub(crate) fn restart(_raw: &mut Raw) -> bool {
    false
}

/// Returns `None`.
pub(crate) fn legacy_call(_number: i64) -> Option<&'static str> {
    None
}

/// Thread pointers are not found.
pub(crate) const HAS_THREAD_POINTERS: bool = false;

/// Returns `None`.
pub(crate) fn thread_pointer(_list: u64, _word: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    None
}
