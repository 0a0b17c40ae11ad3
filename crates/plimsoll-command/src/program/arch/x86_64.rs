//! x86-64.

use gimli::{Register, X86_64};

pub(super) const NAME: &str = "x86-64";

pub(super) const FRAME_POINTER: Register = X86_64::RBP;

/// Recognizes `push %rbp`, and soon after it `mov %rsp, %rbp` in either of its encodings.
pub(super) fn begins_with_frame_pointer(code: &[u8]) -> bool {
    const LANDING_PAD: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(LANDING_PAD).unwrap_or(code);
    let Some((0x55, rest)) = code.split_first() else {
        return false;
    };
    rest.windows(3)
        .any(|bytes| matches!(bytes, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prologues_are_recognised() {
        assert!(begins_with_frame_pointer(b"\x55\x48\x89\xe5\x90"));
        assert!(begins_with_frame_pointer(
            b"\xf3\x0f\x1e\xfa\x55\x48\x8b\xec"
        ));
        assert!(begins_with_frame_pointer(b"\x55\x89\xfa\x48\x89\xe5\x53"));
        assert!(!begins_with_frame_pointer(b"\x55\x53\x48\x83\xec\x08"));
        assert!(!begins_with_frame_pointer(b"\x53\x55\x48\x89\xe5"));
        assert!(!begins_with_frame_pointer(b"\x55\x48"));
        assert!(!begins_with_frame_pointer(b""));
    }
}
