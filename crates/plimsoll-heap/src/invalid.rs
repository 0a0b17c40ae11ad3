//! The end of a process that frees memory which is not a block.

/// Prints the address and the reason to standard error, and aborts the process. Nothing that follows
/// such a free can be relied on.
#[cold]
pub(crate) fn free(address: usize, reason: &str) -> ! {
    let mut digits = [0; 2 * size_of::<usize>()];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(address >> (4 * place)) & 15];
    }
    for part in [
        b"plimsoll-heap: invalid free of 0x".as_slice(),
        &digits,
        b": ",
        reason.as_bytes(),
        b"\n",
    ] {
        // SAFETY: the bytes are readable. The process ends, whatever the result.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
    std::process::abort()
}
