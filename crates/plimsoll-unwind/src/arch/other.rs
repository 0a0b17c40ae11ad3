//! Every other processor: stacks are not walked.

use gimli::{Register, Vendor};

use super::{Call, Captured};

/// Unknown; no walk gets that far.
pub(crate) const HAS_LINK_REGISTER: bool = false;

/// Instructions are aligned by this number of bytes.
pub(crate) const INSTRUCTION_ALIGNMENT: usize = 1;

/// No register has this number.
pub(crate) const STACK_POINTER: Register = Register(u16::MAX);

/// No register has this number.
pub(crate) const FRAME_POINTER: Register = Register(u16::MAX - 1);

/// No register has this number.
pub(crate) const RETURN_ADDRESS: Register = Register(u16::MAX - 2);

/// No extension.
pub(crate) const VENDOR: Vendor = Vendor::Default;

/// No call is decoded.
pub(crate) const LONGEST_CALL: usize = 1;

/// Returns zeros, with which each walk ends at once.
#[inline(always)]
pub(crate) fn here() -> Captured {
    Captured {
        instruction: 0,
        stack: 0,
        frame: 0,
        link: 0,
    }
}

/// Returns zeros, with which each walk ends at once.
#[cfg(target_os = "linux")]
pub(crate) fn interrupted(_context: &libc::ucontext_t) -> Captured {
    here()
}

/// Returns `None`: signal frames are not decoded.
pub(crate) fn signal_frame(
    _stack: usize,
    _read: impl FnMut(usize) -> Option<usize>,
) -> Option<Captured> {
    None
}

/// Returns false: signal frames are not decoded.
pub(crate) fn is_signal_trampoline(_address: usize) -> bool {
    false
}

/// Returns false: signal frames are not decoded.
pub(crate) fn is_copied_trampoline(_code: [u8; 8]) -> bool {
    false
}

/// Returns the address: return addresses are not signed.
#[inline(always)]
pub(crate) fn strip(address: usize) -> usize {
    address
}

/// Returns `None`: code is not decoded.
pub(crate) fn distance_to_frame(_code: &[u8]) -> Option<usize> {
    None
}

/// The length of the code that [`freed_by_epilogue`] reads.
pub(crate) const LONGEST_EPILOGUE: usize = 1;

/// Returns `None`: functions that call others keep frame records.
pub(crate) fn freed_by_epilogue(_code: [u8; LONGEST_EPILOGUE]) -> Option<usize> {
    None
}

/// Returns `None`: code is not decoded.
pub(crate) fn call_before(_address: usize, _code: [u8; LONGEST_CALL]) -> Option<Call> {
    None
}
